"""The event loop that all rehearsals of a process share.

A client that a model or a tool keeps belongs to the loop that it was first used in: with a loop for each turn the
second turn of a test would find its connections dead.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result, whether or not another loop is running here: then from a thread of its own."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    if running is _loop:
        work.close()
        raise RuntimeError("a rehearsal cannot wait for another one inside of it")
    came: list[T] = []
    failed: list[BaseException] = []

    def run_there() -> None:
        try:
            came.append(_run(work))
        # Carried to the test that waits for it, whatever it is.
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run_there, name="rehearsal", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return came[0]


def _run(work: Coroutine[Any, Any, T]) -> T:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            atexit.register(_close)
        try:
            return _loop.run_until_complete(work)
        finally:
            _end_all(_loop)


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """What a turn has left behind must not go on in the next one."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


def _close() -> None:
    if _loop is not None:
        _loop.run_until_complete(_loop.shutdown_asyncgens())
        _loop.close()
