"""Periodic background tasks of a process. Each runs in its own asyncio task: none waits for another or fails with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from django.db import Error as DatabaseError

from sessions_app.core.base import redaction
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.lock_timeouts import LockHeld

log = logging.getLogger(__name__)


class PeriodicTask:
    """A task that is repeated. Its errors are logged when they begin, when their kind changes and when they are over."""

    def __init__(self, name: str, do: Callable[[], Awaitable[object]]) -> None:
        self.name, self._do = name, do
        self._failing = ""

    @property
    def failing(self) -> bool:
        """Whether the last round failed."""
        return bool(self._failing)

    async def repeat(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        """Run forever, with a pause of ``seconds`` after each round. While ``stopping()`` is true, rounds are skipped."""
        while True:
            if not stopping():
                await self.attempt()
            await asyncio.sleep(seconds)

    async def repeat_when(self, is_due: asyncio.Event) -> None:
        """Run a round whenever the event is set; what sets it during a round is ignored."""
        while True:
            await is_due.wait()
            await self.attempt()
            is_due.clear()

    async def attempt(self) -> None:
        """Run one round; its errors are logged, not raised."""
        try:
            await self._do()
        except LockHeld:
            return
        except Exception as error:
            kind = type(error).__name__
            if kind == self._failing:
                return
            self._failing = kind
            if isinstance(error, (DatabaseError, NotReady)):
                log.warning("periodic_task_failing task=%r: the database: %s", self.name, kind)
            else:
                log.error("periodic_task_failing task=%r: %s", self.name, redaction.described(error))
        else:
            if self._failing:
                log.info("periodic_task_recovered task=%r", self.name)
                self._failing = ""
