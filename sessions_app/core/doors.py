"""Who is served at the same moment: no tenant takes all that a process has to serve with, over whichever face it asks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from django.conf import settings

_KEPT_FOR_NEWCOMERS = 8
_MOST_REMEMBERED = 10_000


class Doors:
    """A tenant has at most half of the places, and one in eight is kept for those that have none.

    So requests that wait for one tenant's lock hold no other's up. What is over a share waits here, with
    neither a thread nor a connection, and of those that wait the tenant with the fewest places goes first.

    Who knocks shows a key; whose it is, is known once it was looked up. Until then the key stands for itself.
    Used in one loop.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._share = max(1, places // 2)
        self._for_all = places - -(-places // _KEPT_FOR_NEWCOMERS) if places > 2 else places
        self._inside: dict[Hashable, int] = {}
        self._busy = 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._owners: dict[int, str] = {}

    def owner(self, shown: bytes) -> Hashable:
        """Who shows this key: its tenant, as far as that is known."""
        number = hash(shown)
        return self._owners.get(number, number)

    def is_of(self, shown: bytes, tenant: str) -> None:
        """What was found out about a key that was shown."""
        if len(self._owners) >= _MOST_REMEMBERED:
            self._owners.clear()
        self._owners[hash(shown)] = tenant

    @asynccontextmanager
    async def place(self, owner: Hashable) -> AsyncIterator[None]:
        if self._waiting.get(owner) or not self._fits(owner):
            await self._wait(owner)
        else:
            self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    def _fits(self, owner: Hashable) -> bool:
        inside = self._inside.get(owner, 0)
        if self._busy >= self._places:
            return False
        return inside < (self._share if self._busy < self._for_all else 1)

    def _enter(self, owner: Hashable) -> None:
        self._busy += 1
        self._inside[owner] = self._inside.get(owner, 0) + 1

    async def _wait(self, owner: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It had been let in already.
                self._leave(owner)
            else:
                line = self._waiting[owner]
                line.remove(turn)
                if not line:
                    del self._waiting[owner]
            raise

    def _leave(self, owner: Hashable) -> None:
        self._busy -= 1
        left = self._inside[owner] - 1
        if left:
            self._inside[owner] = left
        else:
            del self._inside[owner]
        while ready := [each for each in self._waiting if self._fits(each)]:
            first = min(ready, key=lambda each: self._inside.get(each, 0))
            line = self._waiting.pop(first)
            turn = line.popleft()
            if line:
                # Back at the end: tenants with equally many places take turns.
                self._waiting[first] = line
            if not turn.done():
                self._enter(first)
                turn.set_result(None)


_doors: WeakKeyDictionary[asyncio.AbstractEventLoop, Doors] = WeakKeyDictionary()
_doors_lock = threading.Lock()


def of_loop() -> Doors:
    """Those of the running loop: one for all faces, because they share the connections to the database."""
    loop = asyncio.get_running_loop()
    found = _doors.get(loop)
    if found is None:
        with _doors_lock:
            found = _doors.setdefault(loop, Doors(settings.AGENTHOST_DATABASE_POOL_MAX))
    return found
