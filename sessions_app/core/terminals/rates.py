"""Rates of output: a tenant's terminals in one service share one, so that a flood is slowed down where it begins. Pure."""

from __future__ import annotations

import asyncio


class Rates:
    """``per_second`` bytes of each tenant, and as much at once. Used in one loop."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._free_at: dict[int, float] = {}

    async def take(self, tenant: int, size: int) -> None:
        """Count output that was read, and wait before the next read if the tenant is over its rate."""
        now = asyncio.get_running_loop().time()
        free_at = max(self._free_at.get(tenant, 0.0), now - 1.0) + size / self._per_second
        self._free_at[tenant] = free_at
        if free_at > now:
            await asyncio.sleep(free_at - now)

    def forget(self, tenant: int) -> None:
        """The tenant has no terminal here any more."""
        self._free_at.pop(tenant, None)
