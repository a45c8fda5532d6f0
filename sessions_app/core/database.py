"""The one door between asyncio loops and the ORM.

Loops call ``run``; it uses a bounded pool of threads and gives the connection back after each call,
so two hundred waiting streams hold no connection. A server hands whole requests to ``serve``, which has
threads of its own: requests may wait for each other's locks, and streams must not wait for them.
Nothing else in the project leaves a loop for the ORM.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections, connection, connections

P = ParamSpec("P")
T = TypeVar("T")


class _Threads:
    """A pool that is made when it is first needed, and can be ended and made anew."""

    def __init__(self, name: str, most: Callable[[], int]) -> None:
        self._name, self._most = name, most
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            with self._lock:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._most(), thread_name_prefix=self._name)
        return self._pool

    def shut_down(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
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


_calls = _Threads("database", lambda: int(settings.AGENTHOST_DATABASE_THREADS))
# Some requests wait without a connection (a cancel for its worker): they must not keep others from one.
_requests = _Threads("request", lambda: 2 * int(settings.AGENTHOST_DATABASE_POOL_MAX))


def release() -> None:
    """Give the calling thread's connection back; a view calls this before it returns a streaming body."""
    if connection.in_atomic_block:
        return
    if connection.vendor == "sqlite":
        # A file handle, not a server's backend: opening it anew costs more than it holds.
        close_old_connections()
    else:
        connection.close()


def _call_and_release(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        release()


async def run(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in the pool, with the caller's context variables; its connection goes back after."""
    call = partial(copy_context().run, _call_and_release, partial(fn, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_calls.pool(), call)


async def serve(context: Context, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn``, which answers a request, in ``context`` in a thread for requests; its connection goes back after."""
    call = partial(context.run, _call_and_release, partial(fn, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_requests.pool(), call)


def shut_down() -> None:
    """End the pools' threads, and with them the connections they keep (tests, the end of a process)."""
    _calls.shut_down()
    _requests.shut_down()
