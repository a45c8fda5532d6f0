"""Renews a worker's lease from a separate thread, as long as the worker's loop responds.

One row per worker, ``WorkerPresence``, is the lease of all its turns. A turn has a lease of its own only while its worker does
not drive it: each renewal gives one to the turns that are this worker's in the database and not in its loop, because their
runs failed, were stopped, or never began; nobody renews it, so another worker takes the turn over when it has expired.

During an outage of the database the worker keeps its runs, and renews as soon as the database is back: other workers wait
for one lease's time after their own first contact before they take anything over (sweep.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from django.conf import settings
from django.db import DatabaseError

from sessions_app.core.base import database, raw_sql, redaction, supervision
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import live_workers

log = logging.getLogger(__name__)

_LOOP_RESPONDS_WITHIN = 2.0
_OUTAGE_PAUSE = 0.5
"""Seconds between two attempts during an outage. Short, because others take runs over one lease's time after it."""
_LATE_TIMER = 1.0
"""A timer that fires this many seconds late shows that the process itself was suspended."""


_RUNS = """
select id, lease_expires_at is not null from sessions_app_turn where worker = %s and state = 'running'
"""
# Locked turns are skipped: a transaction that cancels one may wait long for its tenant's counter, and other tenants' turns
# must not wait for it.
_OF_WORKER = """
select t.id from sessions_app_turn t where t.id {among} and t.worker = %s and t.state = 'running' {for_change_of_turn}
"""
_SET_LEASES = f"update sessions_app_turn set lease_expires_at = {{moment}} where id in ({_OF_WORKER})"
_CLEAR_LEASES = f"update sessions_app_turn set lease_expires_at = null where id in ({_OF_WORKER})"
_EXPIRE = """
update sessions_app_turn set lease_expires_at = {moment} where id in
 (select t.id from sessions_app_turn t where t.worker = %s and t.state = 'running' {for_change_of_turn})
"""


class Leases:
    """Renews the lease of the turns that ``own_turns`` returns; calls the other callbacks in the worker's loop.

    ``on_doubt``: some of these turns are not this worker's in the database; another worker may have them.
    ``on_loss``: nothing was renewed for ``AGENTHOST_DATABASE_OUTAGE_SECONDS``; repeated until renewals succeed.
    """

    def __init__(
        self,
        worker: str,
        loop: asyncio.AbstractEventLoop,
        own_turns: Callable[[], set[int]],
        on_doubt: Callable[[], object],
        on_loss: Callable[[], object],
        queues: Sequence[str] | None = None,
    ) -> None:
        self._worker, self._loop, self._own_turns, self._on_doubt, self._on_loss = worker, loop, own_turns, on_doubt, on_loss
        self._queues = queues
        self._stopped = threading.Event()
        self._thread = supervision.thread(self._renew_for_ever, "leases", may_return=self._stopped.is_set)
        self._timer: asyncio.TimerHandle | None = None
        self._held_until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether the last renewal is recent: a turn that was claimed without a lease would be taken over at once."""
        return time.monotonic() < self._held_until

    def take(self) -> None:
        """Take the first lease, before the loop runs."""
        self._held_until = time.monotonic() + settings.AGENTHOST_LEASE_SECONDS
        live_workers.announce(self._worker, self._queues)

    def start(self) -> None:
        """Renew from now on."""
        self._loop.call_soon_threadsafe(self._set_timer, settings.AGENTHOST_DATABASE_OUTAGE_SECONDS)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Renew no more. Waits at most ``timeout`` seconds for a renewal in progress."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _renew_for_ever(self) -> None:
        pause = usual = settings.AGENTHOST_RENEW_SECONDS
        while not self._stopped.wait(pause):
            pause = min(usual, _OUTAGE_PAUSE)
            try:
                if not self._loop_responds():
                    log.error(
                        "leases_not_renewed worker=%s: its event loop did not respond within %g s",
                        self._worker,
                        _LOOP_RESPONDS_WITHIN,
                    )
                else:
                    self._renew()
                    pause = usual
            except DatabaseError as error:
                log.warning("leases_not_renewed worker=%s error=%s", self._worker, type(error).__name__)
            except Exception as error:
                log.error("leases_not_renewed worker=%s: %s", self._worker, redaction.described(error))
            finally:
                database.release()

    def _loop_responds(self) -> bool:
        responded = threading.Event()
        self._loop.call_soon_threadsafe(responded.set)
        return responded.wait(_LOOP_RESPONDS_WITHIN)

    def _renew(self) -> None:
        driven, asked = self._own_turns(), time.monotonic()
        with_own_lease = renew(self._worker, self._queues)
        self._loop.call_soon_threadsafe(self._renewed, asked)
        if driven - with_own_lease.keys():
            # Ended just now, or taken over while this worker could not renew.
            self._loop.call_soon_threadsafe(self._on_doubt)
        # Again, because a run may have begun meanwhile.
        driven |= self._own_turns()
        let_go_of(self._worker, [turn for turn, own in with_own_lease.items() if not own and turn not in driven])
        keep(self._worker, [turn for turn, own in with_own_lease.items() if own and turn in driven])

    # --- in the loop ---

    def _renewed(self, asked: float) -> None:
        self._held_until = asked + settings.AGENTHOST_LEASE_SECONDS
        self._set_timer(settings.AGENTHOST_DATABASE_OUTAGE_SECONDS)

    def _set_timer(self, seconds: float) -> None:
        # Not in the renewing thread, where a statement hangs as long as the database does.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._timer_fired, self._loop.time() + seconds)

    def _timer_fired(self, due: float) -> None:
        if self._stopped.is_set():
            return
        if self._loop.time() - due > _LATE_TIMER:
            # The process was suspended, which does not show that the database failed: wait for the next renewal.
            self._set_timer(settings.AGENTHOST_LEASE_SECONDS)
        else:
            self._on_loss()
            self._set_timer(settings.AGENTHOST_RENEW_SECONDS)


def renew(worker: str, queues: Sequence[str] | None = None) -> dict[int, bool]:
    """Renew this worker's lease. Returns its running turns in the database, each with whether it has a lease of its own."""
    _, runs = raw_sql.rows_of_each([live_workers.renewal(worker, queues), Statement(_RUNS, (worker,))])
    return {turn: bool(own) for turn, own in runs}


def let_go_of(worker: str, turns: Collection[int]) -> None:
    """Give these turns of the worker a lease of their own, which is not renewed.

    Shorter than a worker's, because a renewal's interval may have passed since the worker let go of the turn.
    """
    if turns:
        seconds = settings.AGENTHOST_LEASE_SECONDS - settings.AGENTHOST_RENEW_SECONDS
        raw_sql.execute([Statement(_SET_LEASES, (float(max(0, seconds)), sorted(turns), worker))])


def keep(worker: str, turns: Collection[int]) -> None:
    """Remove these turns' own leases: the worker drives them."""
    if turns:
        raw_sql.execute([Statement(_CLEAR_LEASES, (sorted(turns), worker))])


def expire(worker: str) -> None:
    """Let other workers take over this worker's remaining turns at once; locked ones as soon as they are not locked.

    Workers of the release before look only at the turns' own leases, so these expire too.
    """
    live_workers.leave(worker)
    raw_sql.execute([Statement(_EXPIRE, (-1.0, worker))])
