"""The event loop that carries a process's own connections: announcements over Redis, barriers over Postgres.

A connection in the loop that uses it costs no thread and no change of threads. Web processes and workers adopt their loop;
where no loop is adopted (management commands, most tests), these connections have threads. Several loops may be adopted.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable

Close = Callable[[], Awaitable[None]]
"""Closes a connection of a loop that ends; runs in the loop and does not raise."""

_lock = threading.Lock()
_adopted: dict[asyncio.AbstractEventLoop, list[Close]] = {}

# A forked process has the parent's loop object, but nothing runs it.
os.register_at_fork(after_in_child=_adopted.clear)


def adopt() -> None:
    """Let the running loop carry connections until ``release``."""
    with _lock:
        _adopted.setdefault(asyncio.get_running_loop(), [])


async def release() -> None:
    """Close the connections that the running loop carries. Their users continue in another adopted loop, or in threads."""
    with _lock:
        closes = _adopted.pop(asyncio.get_running_loop(), [])
    for close in closes:
        await close()


def current() -> asyncio.AbstractEventLoop | None:
    """The loop that was adopted first, for connections of the whole process; None if there is none."""
    with _lock:
        return next(iter(_adopted), None)


def silent(patience: float) -> bool:
    """Whether an adopted loop does not run what it is given within ``patience`` seconds. Called by other threads."""
    with _lock:
        loops = list(_adopted)
    answered = []
    for loop in loops:
        event = threading.Event()
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # It has been closed since: the process is ending.
            continue
        answered.append(event)
    until = time.monotonic() + patience
    return not all(event.wait(max(0.0, until - time.monotonic())) for event in answered)


def attach(loop: asyncio.AbstractEventLoop, close: Close) -> bool:
    """Have ``close`` called when the loop is released; False if the loop is not adopted."""
    with _lock:
        closes = _adopted.get(loop)
        if closes is not None:
            closes.append(close)
        return closes is not None


def is_running_in(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether the caller runs in this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
