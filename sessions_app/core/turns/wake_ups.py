"""Publishes wake-ups for workers from a thread of its own, so that no request waits for the broker.

A wake-up says nothing about a turn: it makes a worker look at the queue. So one that is published after a turn was committed
is enough for this turn and for all before it, and requests that arrive before the next one is published share it. At most one
is pending, however long the broker is unavailable; it is published when the broker is back.
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
    """``publish`` sends one wake-up; it may block, and raise."""

    def __init__(self, publish: Callable[[], object], retry_seconds: float = RETRY_SECONDS) -> None:
        self._publish, self._retry_seconds = publish, retry_seconds
        self._wanted = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._reports = Reports()

    def request(self) -> None:
        """Publish one soon. Callable from any thread; never waits for the broker, never raises."""
        self._wanted.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = supervision.thread(self._run, "wake-ups", may_return=lambda: False)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            # Cleared before publishing: a request that arrives while this one is being published gets its own.
            self._wanted.clear()
            try:
                self._publish()
            except Exception as error:  # whatever the broker's client raises, the thread continues
                self._reports.failed(error)
                self._wanted.set()
                self._pause()
            else:
                self._reports.published()

    def _pause(self) -> None:
        threading.Event().wait(self._retry_seconds)
