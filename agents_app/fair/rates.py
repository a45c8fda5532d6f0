"""Rates of bytes, by owner: a flood is slowed down where it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Rates:
    """``per_second`` bytes of each owner, and as much at once. Used in one loop."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._free_at: dict[Hashable, float] = {}

    async def take(self, owner: Hashable, size: float) -> None:
        """Count what was read, and wait before the next read if the owner is over its rate."""
        now = asyncio.get_running_loop().time()
        free_at = max(self._free_at.get(owner, 0.0), now - 1.0) + size / self._per_second
        self._free_at[owner] = free_at
        if free_at > now:
            await asyncio.sleep(free_at - now)

    def forget(self, owner: Hashable) -> None:
        """The owner has nothing here any more."""
        self._free_at.pop(owner, None)
