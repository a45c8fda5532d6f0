"""A worker's leases: renewed by a thread of its own, all with one statement, for as long as the worker's loop answers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from sessions_app.core import database, faults, presence
from sessions_app.models import Turn, TurnState

log = logging.getLogger(__name__)

_LOOP_ANSWERS_WITHIN = 2.0
_RENEWED_AGAIN, _RENEWED_AGAIN_AFTER = 5, 0.05


class Leases:
    """``driven`` answers the turns whose leases are to be renewed. ``lost`` is called in the loop, again and again,
    when they could not be for too long: soon others may take them."""

    def __init__(
        self, worker: str, loop: asyncio.AbstractEventLoop, driven: Callable[[], set[int]], lost: Callable[[], object]
    ) -> None:
        self._worker, self._loop, self._driven, self._lost = worker, loop, driven, lost
        self._thread = threading.Thread(target=self._renew_for_ever, name="leases", daemon=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Renew no more; waits so long for what is being renewed."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _renew_for_ever(self) -> None:
        last = time.monotonic()
        give_up_after = settings.AGENTHOST_LEASE_SECONDS * 2 / 3
        while not self._stopped.wait(settings.AGENTHOST_RENEW_SECONDS):
            try:
                if not self._loop_answers():
                    log.error("the loop of worker %s has not answered; its leases are not renewed", self._worker)
                else:
                    self._renew()
                    last = time.monotonic()
            except DatabaseError as error:
                log.warning("the leases of worker %s could not be renewed: %s", self._worker, type(error).__name__)
            except Exception as error:
                log.error("renewing leases failed: %s", faults.described(error))
            finally:
                database.release()
            if time.monotonic() - last > give_up_after:
                self._loop.call_soon_threadsafe(self._lost)

    def _loop_answers(self) -> bool:
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return answered.wait(_LOOP_ANSWERS_WITHIN)

    def _renew(self) -> None:
        left = self._driven()
        for _ in range(_RENEWED_AGAIN):
            left -= extend(self._worker, left)
            if not left or self._stopped.wait(_RENEWED_AGAIN_AFTER):
                break
        presence.announce(self._worker)


def extend(worker: str, turns: set[int]) -> set[int]:
    """Renew these leases, but for turns that somebody has locked: whoever cancels one may wait long for its tenant's
    counter, and the leases of all other tenants' runs must not wait with it."""
    mine = Turn.objects.filter(pk__in=turns, worker=worker, state=TurnState.RUNNING)
    with transaction.atomic():
        skips = connection.features.has_select_for_update_skip_locked
        free = set(mine.select_for_update(no_key=skips, skip_locked=skips).values_list("pk", flat=True))
        lease = Now() + timedelta(seconds=settings.AGENTHOST_LEASE_SECONDS)
        Turn.objects.filter(pk__in=free).update(lease_expires_at=lease)
    return free


def expire(worker: str) -> None:
    """Whatever could not be handed over is free for others at once."""
    Turn.objects.filter(worker=worker, state=TurnState.RUNNING).update(lease_expires_at=Now() - timedelta(seconds=1))
