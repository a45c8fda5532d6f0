"""How fast one connection may dispatch: faster means waiting, never an error."""

from __future__ import annotations

import asyncio

from sessions_app.core.base.buckets import Bucket

_BURST_SECONDS = 2.0


class Allowance:
    """``rate`` a second, with two seconds' worth saved up at most; 0: no limit."""

    def __init__(self, rate: int) -> None:
        self._bucket = Bucket(rate, rate * _BURST_SECONDS) if rate else None

    async def take(self) -> None:
        """Returns when one more may happen."""
        if self._bucket is not None and (seconds := self._bucket.borrow(asyncio.get_running_loop().time())):
            await asyncio.sleep(seconds)
