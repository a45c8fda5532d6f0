"""The threads in which coroutines work on files: bounded, shared fairly between tenants, and apart from the database's.

A slow disk occupies these threads only. The functions return their database connection before they use the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

from agents_app.fair.threads import FairPool
from sessions_app.core.base import database
from sessions_app.core.base.errors import FilesAway

P = ParamSpec("P")
T = TypeVar("T")

WAIT_SECONDS = 30.0
"""How long a call waits for a thread: the tenant's others are busy."""
LONGEST_SECONDS = 300.0
"""How long a call may take before its caller gets an error. Its thread continues."""

_pool: FairPool | None = None
_changes = threading.Lock()


def _threads() -> FairPool:
    global _pool
    with _changes:
        if _pool is None:
            _pool = FairPool(settings.AGENTHOST_FILE_THREADS, name="files", at_end=connections.close_all)
        return _pool


async def run(tenant: int, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in a thread of the tenant's share, at most half of all. FilesAway: no thread, or no result, in time."""
    call = partial(_call_and_release, partial(fn, *args, **kwargs))
    try:
        return await _threads().run(tenant, call, LONGEST_SECONDS, wait_seconds=WAIT_SECONDS)
    except TimeoutError:
        raise FilesAway from None


def _call_and_release(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        database.release()


def shut_down() -> None:
    """End the threads (in tests and at the end of a process); the next call starts others."""
    global _pool
    with _changes:
        pool, _pool = _pool, None
    if pool is not None:
        pool.close()
        pool.join()
