"""A loop in a thread that carries the process's connections, as that of a web process or a worker does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from sessions_app.core.base import process_loop

T = TypeVar("T")

_WAIT = 60.0


class Adopted:
    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="adopted loop")
        self._thread.start()
        self._carries = True
        self.do(self._adopt())

    async def _adopt(self) -> None:
        process_loop.adopt()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(_WAIT)

    def release(self) -> None:
        if self._carries:
            self._carries = False
            self.do(process_loop.release())

    def end(self) -> None:
        self.release()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_WAIT)
        self.loop.close()


@contextmanager
def adopted_loop() -> Iterator[Adopted]:
    made = Adopted()
    try:
        yield made
    finally:
        made.end()
