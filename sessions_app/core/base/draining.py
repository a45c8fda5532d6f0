"""Whether this process is shutting down.

Set at SIGTERM and never reset. Streams then end with their current turn, and the readiness check fails, so that a load
balancer sends no new requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def listening(call: Callable[[], None]) -> Iterator[None]:
    """Within the block: call this in the running loop when the process begins to drain, or now if it drains already."""
    token = object()
    with _lock:
        _listeners[token] = (asyncio.get_running_loop(), call)
        started = _draining.is_set()
    if started:
        call()
    try:
        yield
    finally:
        with _lock:
            del _listeners[token]


def is_draining() -> bool:
    return _draining.is_set()
