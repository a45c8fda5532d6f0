"""The take-over of dead workers' runs, one of a worker's duties (duties.py)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from sessions_app.core import turns
from sessions_app.core.base import database, redaction
from sessions_app.core.base.lock_waits import Held
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.turns import Claimed, NeedsSlot
from sessions_app.models import Turn, TurnState

log = logging.getLogger(__name__)

TRIED_AGAIN_AFTER = 30.0
"""Seconds until a turn that could not be taken over is tried again; the others do not wait for it."""
_HELD_AGAIN_AFTER = 0.5
"""The same where a lock, or a moment without the database, was in the way."""
_NEEDS_SLOT_FOR = 10.0
"""Seconds for which a full worker remembers that a run can go on; meanwhile it looks at others, which may have to end."""


@dataclass(slots=True)
class Sweeper:
    """Takes over the runs of dead workers for one worker.

    It takes nothing over within one lease's time after its own first contact with the database, and after every loss
    of contact: leases that ran out while the database was away belong to workers that could not renew them, and these
    renew first. Contact is judged by the database's clock alone: a statement that waited in a frozen server, or in a
    network that was cut, succeeds in the end.
    """

    worker: str
    _in_contact_since: float | None = field(default=None)
    _seen_at: datetime | None = field(default=None)
    _put_off: dict[int, float] = field(default_factory=dict)
    _need_slot: dict[int, float] = field(default_factory=dict)
    _served: set[int] = field(default_factory=set)
    """The tenants that had their turn: each other tenant's first run comes before their next ones."""

    def _look(self) -> None:
        """Look at the database's clock."""
        seen_at, before = live_workers.database_clock(), self._seen_at
        lost = before is not None and not timedelta() <= seen_at - before <= _longest_silence()
        if lost or self._in_contact_since is None:
            self._in_contact_since = time.monotonic()
        self._seen_at = seen_at

    def _may_take_over_until(self) -> datetime | None:
        self._look()
        return self.settled_until(settings.AGENTHOST_LEASE_SECONDS)

    def settled_until(self, seconds: float) -> datetime | None:
        """The latest database time at which a silence of ``seconds`` still proves that a process is gone.

        None: the database was away within the last ``seconds``, so nobody could renew anything.
        """
        if self._seen_at is None or self._in_contact_since is None or time.monotonic() - self._in_contact_since < seconds:
            return None
        return self._seen_at + _longest_silence()

    @property
    def wants_slot(self) -> bool:
        """Whether a run was found that can go on as soon as its worker has a slot for it."""
        return bool(self._need_slot)

    def abandoned(self, *, may_go_on: bool = True) -> Claimed | None:
        """The next run of a dead worker that this one goes on with; those that cannot go on are ended.

        ``may_go_on`` False: this worker is full. Runs that can go on are noted (``wants_slot``) and left to others.
        """
        now = time.monotonic()
        self._put_off = {turn: until for turn, until in self._put_off.items() if until > now}
        self._need_slot = {} if may_go_on else {turn: until for turn, until in self._need_slot.items() if until > now}
        busy: set[int] = set()
        # A tenant may have hundreds of locked turns, and the others' must not wait for each of them.
        some_held: set[int] = set()
        # The clock is read before each statement: many runs take longer to end than a silence may last.
        while (until := self._may_take_over_until()) is not None:
            besides = self._put_off.keys() | self._need_slot.keys()
            try:
                outcome = turns.take_over(
                    self.worker,
                    besides,
                    tenants_besides=busy,
                    tenants_held=some_held,
                    tenants_served=self._served,
                    until=until,
                    may_go_on=may_go_on,
                )
            except journal.CounterHeld as found:
                # The next round finds their turns again.
                busy.update(found.tenants)
            except turns.CannotTakeOver as error:
                self._put_off[error.turn_id] = now + _wait_after(error)
                self._serve(error.tenant)
                if isinstance(error.__cause__, Held):
                    some_held.add(error.tenant)
            else:
                if outcome is None:
                    self._served.clear()
                    return None
                self._serve(outcome.tenant)
                if isinstance(outcome, NeedsSlot):
                    self._need_slot[outcome.turn_id] = now + _NEEDS_SLOT_FOR
                elif isinstance(outcome, Claimed):
                    log.warning("took over turn %s of a worker that is gone", outcome.turn_id)
                    return outcome
        return None

    def _serve(self, tenant: int) -> None:
        if tenant in self._served:
            # All tenants with runs to be taken over had their turn: a new round begins.
            self._served.clear()
        self._served.add(tenant)


def _wait_after(error: turns.CannotTakeOver) -> float:
    cause = error.__cause__
    if isinstance(cause, Held) or (cause is not None and database.is_away(cause)):
        return _HELD_AGAIN_AFTER
    log.error("turn %s cannot be taken over: %s", error.turn_id, redaction.described(error))
    return TRIED_AGAIN_AFTER


def _longest_silence() -> timedelta:
    """The longest outage that no sweeper has to notice: a worker that renews after it still has its leases."""
    return timedelta(seconds=(settings.AGENTHOST_LEASE_SECONDS - settings.AGENTHOST_RENEW_SECONDS) / 2)


def still_mine(worker: str) -> dict[int, int]:
    """This worker's runs as the database has them: turn and fence."""
    return dict(Turn.objects.filter(worker=worker, state=TurnState.RUNNING).values_list("pk", "fence"))
