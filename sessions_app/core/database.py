"""The one door between asyncio loops and the ORM.

Loops call ``run``; it uses a bounded pool of threads and gives the connection back after each call,
so two hundred waiting streams hold no connection. Nothing else in the project leaves a loop for the ORM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections, connection, connections

P = ParamSpec("P")
T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = ThreadPoolExecutor(settings.AGENTHOST_DATABASE_THREADS, thread_name_prefix="database")
    return _pool


def release() -> None:
    """Give the calling thread's connection back; a view calls this before it returns a streaming body."""
    if connection.in_atomic_block:
        return
    if connection.vendor == "sqlite":
        # A file handle, not a server's backend: opening it anew costs more than it holds.
        close_old_connections()
    else:
        connection.close()


def _call_and_release(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return fn(*args, **kwargs)
    finally:
        release()


async def run(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in the pool, with the caller's context variables; its connection goes back after."""
    call = sync_to_async(_call_and_release, thread_sensitive=False, executor=_threads())
    return await call(fn, *args, **kwargs)


def shut_down() -> None:
    """End the pool's threads, and with them the connections they keep (tests, the end of a process)."""
    global _pool
    with _pool_lock:
        pool, _pool = _pool, None
    if pool is None:
        return
    # Each thread closes its own: a barrier keeps one thread from taking two of these.
    threads = len(pool._threads)
    together = threading.Barrier(threads) if threads else None

    def close_mine() -> None:
        if together is not None:
            together.wait(5)
        connections.close_all()

    for _ in range(threads):
        pool.submit(close_mine)
    pool.shutdown(wait=True)
