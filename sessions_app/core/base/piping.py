"""Long downloads: a thread writes into a pipe as fast as the client reads; a coroutine reads the other end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import IO, cast

from sessions_app.core.base import database

log = logging.getLogger(__name__)

_CHUNK = 64 * 1024


class Piped(AsyncIterator[bytes]):
    """What ``write`` writes, in chunks. It runs in a thread of its own, which ends when this object is closed or dropped.

    If ``write`` fails in the middle, the last ``anext`` raises its error: output that looks complete is complete.
    """

    def __init__(self, write: Callable[[IO[bytes]], object], name: str, at_end: Callable[[], object] = lambda: None) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._failure: list[Exception] = []
        # Also if nobody ever reads, and nobody closes it.
        self._close = weakref.finalize(self, os.close, self._reading)
        arguments = (write, writing, self._failure, at_end, name)
        threading.Thread(target=_write, args=arguments, name=name, daemon=True).start()

    async def __anext__(self) -> bytes:
        while self._close.alive:
            try:
                chunk = os.read(self._reading, _CHUNK)
            except BlockingIOError:
                await self._wait()
                continue
            if chunk:
                return chunk
            self.close()
            if self._failure:
                raise self._failure[0]
        raise StopAsyncIteration

    async def _wait(self) -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._reading, arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(self._reading)

    def close(self) -> None:
        """Stop: the thread gets an error for its next write, if it is not done."""
        self._close()

    async def aclose(self) -> None:
        self.close()


def _write(
    write: Callable[[IO[bytes]], object], descriptor: int, failure: list[Exception], at_end: Callable[[], object], name: str
) -> None:
    out = _Pipe(descriptor)
    try:
        write(cast("IO[bytes]", out))
    except BrokenPipeError:
        # The reader has gone.
        return
    except Exception as error:
        log.warning("download_failed download=%s: %s", name, type(error).__name__)
        failure.append(error)
    finally:
        out.end()
        try:
            database.release()
        finally:
            at_end()
            # Last: a reader that sees the end may count on what this thread held.
            os.close(descriptor)


class _Pipe:
    """The writing end. ``tarfile`` writes once more when an unfinished archive is discarded: that is ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_ended = False

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest and not self._has_ended:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError:
                self._has_ended = True
                raise
        return len(data)

    def flush(self) -> None:
        """``zipfile`` calls it; nothing is buffered."""

    def end(self) -> None:
        self._has_ended = True
