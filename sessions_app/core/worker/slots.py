"""The slots of one worker: how many runs it may have at a time, and who may have the next one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from django.conf import settings

from agents_app.fair.shares import Shares

_MOST_PER_CLAIM = 16
"""Limit of one claim: other workers should get turns too, and the first turn should not wait for many others to be read."""


class Slots:
    """Used only in the worker's loop. ``used``: the number of runs. ``is_wanted``: a dead worker's run waits for a slot."""

    def __init__(self, used: Callable[[], int], is_wanted: Callable[[], bool]) -> None:
        self._used, self._is_wanted = used, is_wanted
        self._reserved = 0
        self._freed = asyncio.Event()
        self.is_crowded = False
        """The last claim was for tenants without a running turn alone: others may wait for a slot."""

    def free(self) -> int:
        """Slots for queued turns: the unused ones, except one if a dead worker's run needs it."""
        return max(0, self.unused() - int(self._is_wanted()))

    def unused(self) -> int:
        return max(0, settings.AGENTHOST_WORKER_CONCURRENCY - self._used() - self._reserved)

    def note_freed(self) -> None:
        self._freed.set()

    async def wait_for_free(self) -> None:
        while not self.free():
            self._freed.clear()
            await self._freed.wait()

    @contextlib.contextmanager
    def reserving(self, slots: int) -> Iterator[None]:
        """Reserve slots for runs that are being claimed or taken over."""
        self._reserved += slots
        try:
            yield
        finally:
            self._reserved -= slots
            self._freed.set()

    def to_claim(self) -> tuple[int, bool]:
        """How many turns to claim at most, and whether only tenants without a running turn may have these slots.

        A tenant may use all slots but a reserved share: runs do not slow each other down, they take memory and a lease.
        """
        slots = settings.AGENTHOST_WORKER_CONCURRENCY
        shares, busy = Shares(slots, slots), slots - self.free()
        # Tenants with running turns may wait for a slot then; each run that ends frees one.
        self.is_crowded = shares.is_crowded(busy)
        return min(shares.available(busy), _MOST_PER_CLAIM), self.is_crowded
