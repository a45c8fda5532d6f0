"""An event and a queue for asyncio that take little memory while they are idle.

asyncio's own have deques for those that wait, and an empty deque takes 760 bytes. An idle connection had fourteen of them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SmallEvent(asyncio.Event):
    """An event that few tasks wait for."""

    def __init__(self) -> None:
        self._value = False
        self._waiters: Any = []


class SmallQueue(Generic[T]):
    """An unbounded queue for few items, which one task takes."""

    __slots__ = ("_items", "_waiter")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._waiter: asyncio.Future[None] | None = None

    def put_nowait(self, item: T) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> T:
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.pop(0)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)
