"""Waiting for descriptors on an event loop, for one event at a time."""

from __future__ import annotations

import asyncio


class Waiter:
    """Waits until a descriptor can be read or written. `stop` ends all waits, before the descriptor is closed.

    The descriptor is watched anew for each wait: uvloop reports a descriptor with an error or a hang-up only once, even if data
    are left.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waits: set[asyncio.Future[None]] = set()
        self.stopped = False

    async def readable(self) -> None:
        await self._wait(writing=False)

    async def writable(self) -> None:
        await self._wait(writing=True)

    async def _wait(self, *, writing: bool) -> None:
        if self.stopped:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waits.add(future)
        if writing:
            loop.add_writer(self._descriptor, _done, future)
        else:
            loop.add_reader(self._descriptor, _done, future)
        try:
            await future
        finally:
            self._waits.discard(future)
            if writing:
                loop.remove_writer(self._descriptor)
            else:
                loop.remove_reader(self._descriptor)

    async def stop(self) -> None:
        """Ends all waits, and returns when nothing watches the descriptor: then it can be closed."""
        self.stopped = True
        for future in self._waits:
            _done(future)
        while self._waits:  # noqa: ASYNC110
            # For the waiting tasks to run. No event would come later than they do.
            await asyncio.sleep(0)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
