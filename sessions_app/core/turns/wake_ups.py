"""Publishes wake-ups for workers from a thread of its own, so that no request waits for the broker.

A wake-up says nothing about a turn: it makes a worker look at its queue. So one that is published after a turn was committed
is enough for this turn and for all before it in its queue, and requests that arrive before the next one is published share it. At
most one of each queue is pending, however long the broker is unavailable; it is published when the broker is back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sessions_app.core.base import supervision

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Pause after a wake-up that could not be published."""


class Reports:
    """Logs that wake-ups are not published any more, and that they are again: once each."""

    def __init__(self) -> None:
        self._failing = False

    def failed(self, error: BaseException) -> None:
        if not self._failing:
            # Only the class: the message of a broker's client may contain its URL.
            log.warning("wake_ups_not_published error=%s: turns start with the workers' sweep", type(error).__name__)
        self._failing = True

    def published(self) -> None:
        if self._failing:
            log.info("wake_ups_published_again")
        self._failing = False


class WakeUps:
    """``publish`` sends one wake-up for a queue; it may block, and raise."""

    def __init__(self, publish: Callable[[str], object], retry_seconds: float = RETRY_SECONDS) -> None:
        self._publish, self._retry_seconds = publish, retry_seconds
        self._wanted: dict[str, None] = {}
        """The queues of pending wake-ups, the oldest first."""
        self._is_wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._reports = Reports()

    def request(self, queue: str) -> None:
        """Publish one soon. Callable from any thread; never waits for the broker, never raises."""
        self._wanted[queue] = None
        self._is_wanted.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = supervision.thread(self._run, "wake-ups", may_return=lambda: False)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            self._is_wanted.wait()
            self._is_wanted.clear()
            while self._wanted:
                # Removed before publishing: a request that arrives while this one is being published gets its own.
                self._publish_one(next(iter(tuple(self._wanted))))

    def _publish_one(self, queue: str) -> None:
        del self._wanted[queue]
        try:
            self._publish(queue)
        except Exception as error:  # whatever the broker's client raises, the thread continues
            self._reports.failed(error)
            self._wanted[queue] = None
            self._pause()
        else:
            self._reports.published()

    def _pause(self) -> None:
        threading.Event().wait(self._retry_seconds)
