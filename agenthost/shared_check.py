"""A check that many callers ask for at the same time: probes must not use up the threads while a database or a disk hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """Runs ``check`` once at a time in each event loop; all callers that wait meanwhile share its result."""

    def __init__(self, check: Callable[[], Awaitable[T]]) -> None:
        self._check = check
        self._running: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[T]] = WeakKeyDictionary()

    async def within(self, seconds: float) -> T:
        """The result; ``TimeoutError`` if there is none in time. The check goes on then, and later callers wait for it."""
        loop = asyncio.get_running_loop()
        running = self._running.get(loop)
        if running is None or running.done():
            running = self._running[loop] = asyncio.ensure_future(self._check())
        return await asyncio.wait_for(asyncio.shield(running), seconds)
