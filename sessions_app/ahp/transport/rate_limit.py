"""Rate limit for the dispatches of one connection. Clients that send faster wait; they get no error."""

from __future__ import annotations

import asyncio

from sessions_app.core.base.buckets import Bucket

_BURST_SECONDS = 2.0


class RateLimit:
    """``rate``: dispatches per second, with bursts of two seconds' worth; 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._bucket = Bucket(rate, rate * _BURST_SECONDS) if rate else None

    async def take(self) -> None:
        """Wait until one more dispatch is allowed."""
        if self._bucket is not None and (seconds := self._bucket.borrow(asyncio.get_running_loop().time())):
            await asyncio.sleep(seconds)
