"""A read timeout with one timer per stream: a timer for each read would cost a quarter of a delta's CPU time."""

from __future__ import annotations

import asyncio
import math

import aiohttp


class ReadTimeout:
    """Ends a read of ``content`` with TimeoutError at the deadline.

    The timer stays while the deadline moves, and checks the deadline when it fires. Between ``stop`` and the next
    ``start`` there is no deadline: the time that the consumer needs does not count.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._loop = asyncio.get_running_loop()
        self._deadline = self._rings_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def start(self, deadline: float) -> None:
        self._deadline = deadline
        if deadline < self._rings_at:
            self._set(deadline)

    def stop(self) -> None:
        self._deadline = math.inf

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, at: float) -> None:
        self.close()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        if self._loop.time() >= self._deadline:
            self._content.set_exception(TimeoutError())
        elif self._deadline < math.inf:
            self._set(self._deadline)
