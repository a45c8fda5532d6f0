"""Slots for what goes on at the same time in one loop, given out in fair shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager

from agents_app.fair.shares import FairShares, Shares


class FairSlots:
    """``slots`` at a time, at most half of them for one owner (shares.py). Used in one loop.

    A thousand requests of one owner wait for each other, and nobody else waits for them.
    """

    def __init__(self, slots: int, limits: Mapping[Hashable, int] | None = None) -> None:
        self._shares: FairShares[asyncio.Future[None]] = FairShares(Shares.half(slots), limits)

    @asynccontextmanager
    async def held(self, owner: Hashable, wait_seconds: float | None = None) -> AsyncIterator[None]:
        """Hold a slot. TimeoutError: there was none within ``wait_seconds`` seconds."""
        if not self._shares.take(owner):
            await self._wait(owner, wait_seconds)
        try:
            yield
        finally:
            self._give_back(owner)

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
                # It was given a slot in the same moment.
                self._give_back(owner)
            raise

    def _give_back(self, owner: Hashable) -> None:
        self._shares.give_back(owner)
        while (turn := self._shares.next()) is not None:
            # One that is cancelled withdraws, or gives back what it was given.
            if not turn.done():
                turn.set_result(None)
