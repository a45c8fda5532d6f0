"""Renews a worker's leases from a separate thread, all with one statement, as long as the worker's loop responds.

During an outage of the database the worker keeps its runs, and renews as soon as the database is back: other workers wait
for one lease's time after their own first contact before they take anything over (sweep.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from sessions_app.core.base import database, redaction, supervision
from sessions_app.core.records import live_workers
from sessions_app.models import Turn, TurnState

log = logging.getLogger(__name__)

_LOOP_RESPONDS_WITHIN = 2.0
_ATTEMPTS, _ATTEMPT_PAUSE = 5, 0.05
_OUTAGE_PAUSE = 0.5
"""Seconds between two attempts during an outage. Short, because others take runs over one lease's time after it."""
_LATE_TIMER = 1.0
"""A timer that fires this many seconds late shows that the process itself was suspended."""


class Leases:
    """Renews the leases of the turns that ``own_turns`` returns; calls the other callbacks in the worker's loop.

    ``on_doubt``: some of these turns could not be renewed; they may be another worker's.
    ``on_loss``: nothing was renewed for ``AGENTHOST_DATABASE_OUTAGE_SECONDS``; repeated until renewals succeed.
    """

    def __init__(
        self,
        worker: str,
        loop: asyncio.AbstractEventLoop,
        own_turns: Callable[[], set[int]],
        on_doubt: Callable[[], object],
        on_loss: Callable[[], object],
    ) -> None:
        self._worker, self._loop, self._own_turns, self._on_doubt, self._on_loss = worker, loop, own_turns, on_doubt, on_loss
        self._stopped = threading.Event()
        self._thread = supervision.thread(self._renew_for_ever, "leases", may_return=self._stopped.is_set)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._renewed)
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
        left = self._own_turns()
        left -= extend(self._worker, left)
        self._loop.call_soon_threadsafe(self._renewed)
        if left:
            # Locked by another transaction, ended just now, or taken over while this worker could not renew.
            self._loop.call_soon_threadsafe(self._on_doubt)
        for _ in range(_ATTEMPTS - 1):
            if not left or self._stopped.wait(_ATTEMPT_PAUSE):
                break
            left -= extend(self._worker, left)
        live_workers.announce(self._worker)

    # --- in the loop ---

    def _renewed(self) -> None:
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


def extend(worker: str, turns: set[int]) -> set[int]:
    """Renew these turns' leases, and return the turns that were renewed.

    Locked turns are skipped: a transaction that cancels one may wait long for its tenant's counter, and the leases of
    other tenants' runs must not wait for it.
    """
    return _set_leases(Turn.objects.filter(pk__in=turns, worker=worker), settings.AGENTHOST_LEASE_SECONDS)


def expire(worker: str) -> None:
    """Let other workers take over this worker's remaining turns at once; locked ones when their leases expire."""
    _set_leases(Turn.objects.filter(worker=worker), -1)


def _set_leases(turns: QuerySet[Turn], seconds: float) -> set[int]:
    """Set the leases of those turns that are running and not locked, and return them."""
    with transaction.atomic():
        skips = connection.features.has_select_for_update_skip_locked
        running = turns.filter(state=TurnState.RUNNING).select_for_update(no_key=skips, skip_locked=skips)
        free = set(running.values_list("pk", flat=True))
        Turn.objects.filter(pk__in=free).update(lease_expires_at=Now() + timedelta(seconds=seconds))
    return free
