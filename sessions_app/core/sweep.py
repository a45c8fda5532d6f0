"""What every worker looks for once a second: turns nobody woke it for, and runs whose worker died."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from sessions_app.core import faults, journal, presence, turns
from sessions_app.core.turns import Claimed
from sessions_app.models import Turn, TurnState

log = logging.getLogger(__name__)

TRIED_AGAIN_AFTER = 30.0
"""Seconds until a turn that could not be taken over is tried again; the others do not wait for it."""


@dataclass(slots=True)
class Sweeper:
    """One worker's sweep.

    It takes nothing over within one lease's time after its own first contact with the database, and after every loss
    of contact: leases that ran out while the database was away belong to workers that could not renew them, and these
    renew first. Contact is judged by the database's clock alone: a statement that waited in a frozen server, or in a
    network that was cut, succeeds in the end.
    """

    worker: str
    _in_contact_since: float | None = field(default=None)
    _seen_at: datetime | None = field(default=None)
    _put_off: dict[int, float] = field(default_factory=dict)

    def _is_in_contact(self, now: float) -> datetime | None:
        """Until when, by the database's clock, runs may be taken over; None: not yet."""
        seen_at, before = presence.database_clock(), self._seen_at
        self._seen_at = seen_at
        lost = before is not None and not timedelta() <= seen_at - before <= _longest_silence()
        if lost or self._in_contact_since is None:
            self._in_contact_since = now
        return seen_at + _longest_silence() if now - self._in_contact_since >= settings.AGENTHOST_LEASE_SECONDS else None

    def abandoned(self) -> Claimed | None:
        """The next run of a dead worker that this one goes on with; those that cannot go on are ended."""
        now = time.monotonic()
        if (until := self._is_in_contact(now)) is None:
            return None
        self._put_off = {turn: until for turn, until in self._put_off.items() if until > now}
        held: set[int] = set()
        while True:
            try:
                outcome = turns.take_over(self.worker, besides=self._put_off, tenants_besides=held, until=until)
            except journal.CounterHeld as busy:
                # The next round finds their turns again.
                held.update(busy.tenants)
                continue
            except turns.CannotTakeOver as error:
                log.error("turn %s cannot be taken over: %s", error.turn_id, faults.described(error))
                self._put_off[error.turn_id] = now + TRIED_AGAIN_AFTER
                continue
            if outcome is False:
                return None
            if isinstance(outcome, Claimed):
                log.warning("took over turn %s of a worker that is gone", outcome.turn_id)
                return outcome


def _longest_silence() -> timedelta:
    """The longest outage that no sweeper has to notice: a worker that renews after it still has its leases."""
    return timedelta(seconds=(settings.AGENTHOST_LEASE_SECONDS - settings.AGENTHOST_RENEW_SECONDS) / 2)


def still_mine(worker: str) -> dict[int, int]:
    """This worker's runs as the database has them: turn and fence."""
    return dict(Turn.objects.filter(worker=worker, state=TurnState.RUNNING).values_list("pk", "fence"))
