"""Publishes wake-ups for workers from a separate thread, so that no request waits for the broker.

A wake-up only makes a worker look at the queue earlier than its sweep does. A lost one costs a short delay, and one that is
some seconds old is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from sessions_app.core.base import supervision

log = logging.getLogger(__name__)

MOST_PENDING = 1000
"""More are dropped: the pending ones wake workers too."""

_MAX_AGE_SECONDS = 5.0
"""Older ones are dropped: a sweep has found the turn, and a broker that comes back should not get a backlog."""


class WakeUps:
    """``publish`` sends one wake-up; it may block, and raise."""

    def __init__(self, publish: Callable[[], object], max_age_seconds: float = _MAX_AGE_SECONDS) -> None:
        self._publish, self._max_age_seconds = publish, max_age_seconds
        self._pending: deque[float] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failing = False
        self.dropped = 0

    def request(self) -> None:
        """Publish one soon. Callable from any thread; never waits for the broker, never raises."""
        with self._changed:
            if len(self._pending) >= MOST_PENDING:
                self.dropped += 1
                return
            self._pending.append(time.monotonic())
            if self._thread is None:
                self._thread = supervision.thread(self._run, "wake-ups", may_return=lambda: False)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    self._changed.wait()
                requested = self._pending.popleft()
            if time.monotonic() - requested > self._max_age_seconds:
                self.dropped += 1
            else:
                self._publish_one()

    def _publish_one(self) -> None:
        try:
            self._publish()
        except Exception as error:  # whatever the broker's client raises, the thread continues
            if not self._failing:
                log.warning("wake_ups_not_published error=%s: turns start with the workers' sweep", type(error).__name__)
            self._failing = True
        else:
            if self._failing:
                log.info("wake_ups_published_again")
            self._failing = False
