"""Publishes wake-ups from a thread of its own, so that no request waits for the broker.

A wake-up only makes a worker look at the queue sooner than its sweep would. So one that is lost costs a
short delay, and one that is some seconds old is not worth publishing any more.
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
"""A further one is dropped: those pending make workers look at the queue as well."""

_WORTH_SECONDS = 5.0
"""After that the sweep has found the turn. Without this a broker that came back would get a backlog of old ones."""


class WakeUps:
    """``publish`` sends one wake-up; it may block, and raise."""

    def __init__(self, publish: Callable[[], object], worth_seconds: float = _WORTH_SECONDS) -> None:
        self._publish, self._worth_seconds = publish, worth_seconds
        self._pending: deque[float] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._failing = False
        self.dropped = 0

    def request(self) -> None:
        """Have one published soon. From any thread; never waits for the broker, never raises."""
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
            if time.monotonic() - requested > self._worth_seconds:
                self.dropped += 1
            else:
                self._publish_one()

    def _publish_one(self) -> None:
        try:
            self._publish()
        except Exception as error:  # An edge: whatever the broker's client raises, the thread goes on.
            if not self._failing:
                log.warning("wake-ups cannot be published (%s); turns start with the workers' sweep", type(error).__name__)
            self._failing = True
        else:
            if self._failing:
                log.info("wake-ups are published again")
            self._failing = False
