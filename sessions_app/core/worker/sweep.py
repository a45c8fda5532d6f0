"""Takes over the runs of dead workers; one of a worker's periodic tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from sessions_app.core import turns
from sessions_app.core.base import database, raw_sql, redaction
from sessions_app.core.base.lock_timeouts import LockHeld
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.turns import Claimed, NeedsSlot

log = logging.getLogger(__name__)

TRIED_AGAIN_AFTER = 30.0
"""Seconds until a turn that could not be taken over is tried again; other turns do not wait for it."""
_LOCKED_AGAIN_AFTER = 0.5
"""The same if the cause was a lock, or a short outage of the database."""
_OUT_OF_ORDER = timedelta(seconds=1)
_NEEDS_SLOT_FOR = 10.0
"""Seconds for which a full worker skips a run that could continue; meanwhile it looks for runs that have to end."""


@dataclass(slots=True)
class Sweeper:
    """Takes over the runs of dead workers for one worker.

    After its own first contact with the database, and after every loss of contact, it waits for one lease's time: leases
    that expired during an outage belong to workers that could not renew them, and these may renew first. Only the
    database's clock shows a loss of contact, because a statement that hung in a frozen server or a broken network
    succeeds in the end.
    """

    worker: str
    queues: Sequence[str] | None = None
    """Runs of these queues are taken over; None: of all."""
    _in_contact_since: float | None = field(default=None)
    _seen_at: datetime | None = field(default=None)
    _put_off: dict[int, float] = field(default_factory=dict)
    _need_slot: dict[int, float] = field(default_factory=dict)
    _served: set[int] = field(default_factory=set)
    """Tenants that were served in this round: the first run of each other tenant comes before their next ones."""

    def _read_clock(self) -> None:
        self.note_clock(live_workers.database_clock())

    def note_clock(self, seen_at: datetime) -> None:
        """The database's clock was read a moment ago. Notices a loss of contact."""
        before = self._seen_at
        if before is not None and timedelta() < before - seen_at < _OUT_OF_ORDER:
            # Read a moment before the other one, in another thread.
            return
        lost = before is not None and not timedelta() <= seen_at - before <= _longest_silence()
        if lost or self._in_contact_since is None:
            self._in_contact_since = time.monotonic()
        self._seen_at = seen_at

    def _may_take_over_until(self) -> datetime | None:
        self._read_clock()
        return self.settled_until(settings.AGENTHOST_LEASE_SECONDS)

    def settled_until(self, seconds: float) -> datetime | None:
        """The latest database time at which a silence of ``seconds`` still proves that a process is gone.

        None: the database was unavailable within the last ``seconds``, so no process could renew anything.
        """
        if self._seen_at is None or self._in_contact_since is None or time.monotonic() - self._in_contact_since < seconds:
            return None
        return self._seen_at + _longest_silence()

    @property
    def wants_slot(self) -> bool:
        """Whether a run was found that can continue as soon as this worker has a free slot."""
        return bool(self._need_slot)

    def take_next(self, *, may_continue: bool = True) -> Claimed | None:
        """Take over the next run that can continue; runs that cannot are ended on the way.

        ``may_continue`` False: this worker is full. Runs that could continue are counted (``wants_slot``) and left alone.
        """
        now = time.monotonic()
        self._put_off = {turn: until for turn, until in self._put_off.items() if until > now}
        self._need_slot = {} if may_continue else {turn: until for turn, until in self._need_slot.items() if until > now}
        counter_locked: set[int] = set()
        # A tenant may have hundreds of locked turns; other tenants' turns must not wait for each of them.
        rows_locked: set[int] = set()
        # The clock is read before each statement, because ending many runs takes longer than an unnoticed outage may last.
        while (until := self._may_take_over_until()) is not None:
            excluded = self._put_off.keys() | self._need_slot.keys()
            try:
                outcome = turns.take_over(
                    self.worker,
                    excluded,
                    queues=self.queues,
                    excluded_tenants=counter_locked,
                    locked_tenants=rows_locked,
                    served_tenants=self._served,
                    until=until,
                    may_continue=may_continue,
                )
            except journal.CounterLocked as found:
                # The next round finds their turns again.
                counter_locked.update(found.tenants)
            except turns.CannotTakeOver as error:
                self._put_off[error.turn_id] = now + _wait_after(error)
                self._serve(error.tenant)
                if isinstance(error.__cause__, LockHeld):
                    rows_locked.add(error.tenant)
            else:
                if outcome is None:
                    self._served.clear()
                    return None
                self._serve(outcome.tenant)
                if isinstance(outcome, NeedsSlot):
                    self._need_slot[outcome.turn_id] = now + _NEEDS_SLOT_FOR
                elif isinstance(outcome, Claimed):
                    log.warning("turn_taken_over turn=%s: its worker's lease has expired", outcome.turn_id)
                    return outcome
        return None

    def _serve(self, tenant: int) -> None:
        if tenant in self._served:
            # All tenants with runs to take over were served: a new round begins.
            self._served.clear()
        self._served.add(tenant)


def _wait_after(error: turns.CannotTakeOver) -> float:
    cause = error.__cause__
    if isinstance(cause, LockHeld) or (cause is not None and database.is_away(cause)):
        return _LOCKED_AGAIN_AFTER
    log.error("turn_not_taken_over turn=%s: %s", error.turn_id, redaction.described(error))
    return TRIED_AGAIN_AFTER


def _longest_silence() -> timedelta:
    """The longest outage that a sweeper may overlook: a worker that renews after it still has its leases."""
    return timedelta(seconds=(settings.AGENTHOST_LEASE_SECONDS - settings.AGENTHOST_RENEW_SECONDS) / 2)


_RUNS_OF = "select id, fence from sessions_app_turn where worker = %s and state = 'running'"


def runs_of(worker: str) -> dict[int, int]:
    """This worker's running turns in the database, each with its fence."""
    return dict(raw_sql.rows(_RUNS_OF, (worker,)))
