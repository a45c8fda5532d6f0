"""A semaphore with fair shares, for one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager

from agents_app.fair.shares import FairShares, Shares


class FairSlots:
    """At most ``slots`` holders at a time, at most half of them of one owner (shares.py). For one loop.

    A thousand requests of one owner do not delay the requests of others.
    """

    def __init__(self, slots: int, limits: Mapping[Hashable, int] | None = None) -> None:
        self._shares: FairShares[asyncio.Future[None]] = FairShares(Shares.half(slots), limits)

    @asynccontextmanager
    async def held(self, owner: Hashable, wait_seconds: float | None = None) -> AsyncIterator[None]:
        """Hold a slot; TimeoutError if none is free within ``wait_seconds``."""
        if not self._shares.take(owner):
            await self._wait(owner, wait_seconds)
        try:
            yield
        finally:
            self.give_back(owner)

    async def take(self, owner: Hashable) -> None:
        """Wait for a slot and take it; ``give_back`` frees it."""
        if not self._shares.take(owner):
            await self._wait(owner, None)

    def take_now(self, owner: Hashable) -> bool:
        """Take a slot if one is free for this owner; ``give_back`` frees it."""
        return self._shares.take(owner)

    @property
    def busy(self) -> int:
        return self._shares.busy

    async def _wait(self, owner: Hashable, wait_seconds: float | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shares.wait(owner, turn)
        try:
            async with asyncio.timeout(wait_seconds):
                await turn
        except (asyncio.CancelledError, TimeoutError):
            if not self._shares.withdraw(owner, turn):
                # It got a slot at the same moment.
                self.give_back(owner)
            raise

    def give_back(self, owner: Hashable) -> None:
        self._shares.give_back(owner)
        while (turn := self._shares.next()) is not None:
            # A cancelled waiter withdraws, or gives back its slot.
            if not turn.done():
                turn.set_result(None)
