"""Celery beat in a thread: publishes the tasks of the periodic duties, in the one process that holds the duties' lock.

Every worker has one. A process of the role ``beat`` goes first: workers leave the duties to it while it runs. The schedule is
not stored: a process that takes the duties over starts each one when its period has passed once.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

from agenthost.celery import app
from sessions_app.core.base import supervision
from sessions_app.core.base.session_locks import Lock, SessionLocks

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often a process looks whether it has the duties. When their holder dies, another one has them after this."""
_LOST_AFTER_SECONDS = 5 * LOOK_SECONDS
_STOP_SECONDS = 10.0


class _Scheduler(Scheduler):
    """Publishes with the application's connections. Celery's own producer would wait for a broker that is down."""

    producer: Any = None

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:  # noqa: ARG002 - Celery's signature
        # A connection that the broker has closed fails once.
        for attempt in (1, 2):
            try:
                self.apply_async(entry, advance=False)
            except Exception as error:  # whatever the broker's client raises, the next period tries again
                if attempt == 2:
                    cause = error.__cause__ or error.__context__ or error
                    log.warning("duty_not_published duty=%s error=%s", entry.name, type(cause).__name__)
            else:
                return


class Beat:
    """Started and stopped once. ``apart``: this is the role beat."""

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._locks = SessionLocks(_LOST_AFTER_SECONDS)
        self._stopping = threading.Event()
        self._thread = supervision.thread(self._run, "beat", may_return=self._stopping.is_set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        app.set_current()
        scheduler: Scheduler | None = None
        pause = 0.0
        try:
            while not self._stopping.wait(pause):
                had, has = scheduler is not None, self._has_duties()
                if has != had:
                    log.info("beat_has_duties" if has else "beat_left_duties")
                    scheduler = _Scheduler(app) if has else None
                pause = LOOK_SECONDS if scheduler is None else min(LOOK_SECONDS, scheduler.tick())
        finally:
            self._locks.close()

    def _has_duties(self) -> bool:
        if self._apart:
            return self._locks.hold(Lock.BEAT_ROLE) and self._locks.hold(Lock.DUTIES)
        if self._locks.is_free(Lock.BEAT_ROLE):
            return self._locks.hold(Lock.DUTIES)
        self._locks.release(Lock.DUTIES)
        return False
