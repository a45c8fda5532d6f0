"""How fast one connection may dispatch: faster means waiting, never an error."""

from __future__ import annotations

import asyncio

_BURST_SECONDS = 2.0


class Allowance:
    """A bucket of ``rate`` a second that holds two seconds' worth; 0: as much as comes."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._most = rate * _BURST_SECONDS
        self._left = self._most
        self._filled: float | None = None

    async def take(self) -> None:
        """Returns when one more may happen."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        if self._filled is not None:
            self._left = min(self._most, self._left + (now - self._filled) * self._rate)
        self._filled = now
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)
