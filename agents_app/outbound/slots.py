"""Places for what goes on at the same time in one loop, shared out fairly."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

_KEPT_FOR_NEWCOMERS = 8


class FairSlots:
    """``places`` at a time. A key has at most half of them, and one in eight is kept for keys that have none; of those that
    wait, the key with the fewest goes first. A thousand requests of one key wait for each other, not others for them."""

    def __init__(self, places: int) -> None:
        if places < 1:
            raise ValueError("there is at least one place")
        self._places = places
        self._share = max(1, places // 2)
        self._for_all = places - -(-places // _KEPT_FOR_NEWCOMERS) if places > 2 else places
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def held(self, key: Hashable) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._hand_out()
        try:
            await turn
            yield
        finally:
            self._leave(key, turn)

    @property
    def busy(self) -> int:
        return sum(self._held.values())

    def _leave(self, key: Hashable, turn: asyncio.Future[None]) -> None:
        # Cancelled while it waited, or just when its turn had come.
        if turn.done() and not turn.cancelled():
            left = self._held[key] - 1
            if left:
                self._held[key] = left
            else:
                del self._held[key]
        else:
            waiting = self._waiting.get(key)
            if waiting is not None and turn in waiting:
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[key]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and (busy := self.busy) < self._places:
            share = self._share if busy < self._for_all else 1
            ready = [key for key in self._waiting if self._held.get(key, 0) < share]
            if not ready:
                return
            key = min(ready, key=lambda key: self._held.get(key, 0))
            waiting = self._waiting.pop(key)
            turn = waiting.popleft()
            if waiting:
                # Back at the end: keys with equally many take turns.
                self._waiting[key] = waiting
            if turn.cancelled():
                continue
            self._held[key] = self._held.get(key, 0) + 1
            turn.set_result(None)
