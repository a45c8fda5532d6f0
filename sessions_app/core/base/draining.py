"""Whether this process is shutting down.

Set at SIGTERM and never reset. Streams then end with their current turn, and the readiness check fails, so that a load
balancer sends no new requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_draining = threading.Event()
# Reentrant, because the handler of a signal calls ``start`` in the middle of whatever the main thread does.
_lock = threading.RLock()
_listeners: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}


def start() -> None:
    with _lock:
        _draining.set()
        listeners = list(_listeners.values())
    for loop, call in listeners:
        loop.call_soon_threadsafe(call)


class listening:  # noqa: N801 - used as a function: a class takes less memory than a generator
    """Within the block: call this in the running loop when the process begins to drain, or now if it drains already."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        with _lock:
            _listeners[self] = (asyncio.get_running_loop(), self._call)
            started = _draining.is_set()
        if started:
            self._call()

    def __exit__(self, *_error: object) -> None:
        with _lock:
            del _listeners[self]


def is_draining() -> bool:
    return _draining.is_set()
