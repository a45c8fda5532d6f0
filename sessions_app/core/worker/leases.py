"""A worker's leases: renewed by a thread of its own, all with one statement, while the worker's loop answers.

While the database is away the worker keeps its runs, and renews as soon as it is back: other workers wait one lease
after their own first contact before they take anything over (sweep.py).
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

_LOOP_ANSWERS_WITHIN = 2.0
_RENEWED_AGAIN, _RENEWED_AGAIN_AFTER = 5, 0.05
_AWAY_PAUSE = 0.5
"""Seconds between two attempts while the database is away: others take a run over one lease after it is back."""
_LATE_TIMER = 1.0
"""A timer that is this many seconds late shows that the process itself was suspended."""


class Leases:
    """Renews the leases of the turns that ``driven`` returns; calls both other callbacks in the worker's loop.

    ``doubtful``: some of these turns could not be renewed; they may be another worker's.
    ``lost``: nothing was renewed for ``AGENTHOST_DATABASE_OUTAGE_SECONDS``; repeated until renewals succeed.
    """

    def __init__(
        self,
        worker: str,
        loop: asyncio.AbstractEventLoop,
        driven: Callable[[], set[int]],
        doubtful: Callable[[], object],
        lost: Callable[[], object],
    ) -> None:
        self._worker, self._loop, self._driven, self._doubtful, self._lost = worker, loop, driven, doubtful, lost
        self._stopped = threading.Event()
        self._thread = supervision.thread(self._renew_for_ever, "leases", may_return=self._stopped.is_set)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._renewed)
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Renew no more; waits so long for what is being renewed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _renew_for_ever(self) -> None:
        pause = usual = settings.AGENTHOST_RENEW_SECONDS
        while not self._stopped.wait(pause):
            pause = min(usual, _AWAY_PAUSE)
            try:
                if not self._loop_answers():
                    log.error("the loop of worker %s has not answered; its leases are not renewed", self._worker)
                else:
                    self._renew()
                    pause = usual
            except DatabaseError as error:
                log.warning("the leases of worker %s could not be renewed: %s", self._worker, type(error).__name__)
            except Exception as error:
                log.error("renewing leases failed: %s", redaction.described(error))
            finally:
                database.release()

    def _loop_answers(self) -> bool:
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(_LOOP_ANSWERS_WITHIN)

    def _renew(self) -> None:
        left = self._driven()
        left -= extend(self._worker, left)
        self._loop.call_soon_threadsafe(self._renewed)
        if left:
            # Locked by somebody, ended just now, or taken over while this worker could not renew.
            self._loop.call_soon_threadsafe(self._doubtful)
        for _ in range(_RENEWED_AGAIN - 1):
            if not left or self._stopped.wait(_RENEWED_AGAIN_AFTER):
                break
            left -= extend(self._worker, left)
        live_workers.announce(self._worker)

    # --- in the loop ---

    def _renewed(self) -> None:
        self._wait_for(settings.AGENTHOST_DATABASE_OUTAGE_SECONDS)

    def _wait_for(self, seconds: float) -> None:
        # Not in the thread that renews: a statement may hang for as long as the database does.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._is_too_late, self._loop.time() + seconds)

    def _is_too_late(self, due: float) -> None:
        if self._stopped.is_set():
            return
        if self._loop.time() - due > _LATE_TIMER:
            # Suspended, so nothing is known of the database: the next renewal finds out.
            self._wait_for(settings.AGENTHOST_LEASE_SECONDS)
        else:
            self._lost()
            self._wait_for(settings.AGENTHOST_RENEW_SECONDS)


def extend(worker: str, turns: set[int]) -> set[int]:
    """Renew these leases, but for turns that somebody has locked: whoever cancels one may wait long for its tenant's
    counter, and the leases of all other tenants' runs must not wait with it."""
    return _set(Turn.objects.filter(pk__in=turns, worker=worker), settings.AGENTHOST_LEASE_SECONDS)


def expire(worker: str) -> None:
    """Whatever could not be handed over is free for others at once; what somebody has locked, when its lease ends."""
    _set(Turn.objects.filter(worker=worker), -1)


def _set(turns: QuerySet[Turn], seconds: float) -> set[int]:
    """Give these turns, if they run and nobody has them locked, leases of so many seconds; which they were."""
    with transaction.atomic():
        skips = connection.features.has_select_for_update_skip_locked
        running = turns.filter(state=TurnState.RUNNING).select_for_update(no_key=skips, skip_locked=skips)
        free = set(running.values_list("pk", flat=True))
        Turn.objects.filter(pk__in=free).update(lease_expires_at=Now() + timedelta(seconds=seconds))
    return free
