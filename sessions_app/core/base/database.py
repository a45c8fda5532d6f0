"""Database access from asyncio: bounded thread pools, shared fairly between tenants.

Coroutines call ``run_for`` or ``keep_trying`` for a tenant, and ``run`` for the process's own work. Each call returns its
connection, so two hundred idle streams hold none. Whole requests run in ``serve``, which has its own threads: requests may
wait for each other's locks, and streams must not wait for them. Nothing else in the project calls the ORM from a loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial
from typing import ParamSpec, TypeVar

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connection, connections

from agents_app.fair.threads import FairPool
from sessions_app.core.base import loop_calls, loop_connections, write_thread
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.loop_calls import LoopCall, NeedsThread, Repeat
from sessions_app.core.base.loop_connections import LoopPool
from sessions_app.core.base.write_thread import WriteThread

P = ParamSpec("P")
T = TypeVar("T")

UNKNOWN = "unknown"
"""The owner of requests without a key or with a key that was not looked up yet. Other owners are tenant numbers."""
_UNKNOWN_SHARE = 8
"""It gets one thread in eight, so that wrong keys delay no tenant."""


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5
"""Seconds before a call that failed for a lock is repeated."""
_READ_ONLY = "25006"
"""SQLSTATE of a write to a standby: the new primary has not been promoted yet."""


class _Threads:
    """A thread pool that is created on first use; after ``shut_down`` the next use creates another."""

    def __init__(self, name: str, most: Callable[[], int], unknown: Callable[[int], int] | None = None) -> None:
        self._name, self._most, self._unknown = name, most, unknown
        self._pool: FairPool | None = None
        self._lock = threading.Lock()

    def pool(self) -> FairPool:
        if self._pool is None:
            with self._lock:
                if self._pool is None:
                    most = self._most()
                    limits: dict[Hashable, int] = {} if self._unknown is None else {UNKNOWN: self._unknown(most)}
                    self._pool = FairPool(most, limits, name=self._name, at_end=connections.close_all)
        return self._pool

    def shut_down(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
            pool.join()


def _number_of_calls() -> int:
    """At most half the number of connections: a tenant may use half of these threads and half of the request threads, and
    together those must not take all connections."""
    return max(1, min(settings.AGENTHOST_DATABASE_THREADS, settings.AGENTHOST_DATABASE_POOL_MAX // 2))


_calls = _Threads("database", _number_of_calls)
_own = _Threads("own", _number_of_calls)
_files = _Threads("files", lambda: int(settings.AGENTHOST_FILE_THREADS))
_requests = _Threads("request", lambda: int(settings.AGENTHOST_DATABASE_POOL_MAX), lambda most: max(1, most // _UNKNOWN_SHARE))


def release() -> None:
    """Return the calling thread's connection to the pool; a view calls this before it returns a streaming body."""
    if loop_calls.current() is not None or connection.in_atomic_block:
        return
    if connection.vendor == "sqlite":
        # A file handle is cheap to keep, unlike a Postgres backend; reopening it costs more.
        close_old_connections()
    else:
        connection.close()


def _call_and_release(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        release()


async def run(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` for the process itself; tenants' calls do not use these threads.

    Each function counts as an owner with its own share: one that hangs leaves threads for the others.
    """
    return await _own.pool().run(fn, partial(_call_and_release, partial(fn, *args, **kwargs)))


async def run_for(tenant: int, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in a thread of the tenant's share."""
    return await _calls.pool().run(tenant, partial(_call_and_release, partial(fn, *args, **kwargs)))


async def keep_trying(tenant: int, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``run_for``, repeated while ``fn`` fails to get a lock. ``fn`` is one transaction, so a failed call changed nothing.

    While a row stays locked, the tenant uses a thread now and then instead of all the time.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return await run_for(tenant, fn, *args, **kwargs)
        except OperationalError as error:
            if not is_lock_refused(error):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def is_lock_refused(error: BaseException) -> bool:
    """Whether a statement failed because another transaction holds a lock. Its own transaction is rolled back."""
    cause = error.__cause__
    return isinstance(cause, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)


def is_away(error: BaseException) -> bool:
    """Whether the database is unreachable or read-only; False if it refused this statement or its values."""
    if isinstance(error, OperationalError | InterfaceError | NotReady):
        return True
    return isinstance(error, DatabaseError) and getattr(error.__cause__, "sqlstate", None) == _READ_ONLY


async def serve(
    owner: Hashable, timeout: float | None, context: Context, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn``, which answers a request, in ``context`` in one of the owner's request threads.

    Raises TimeoutError if no thread was free within ``timeout`` seconds; ``fn`` was not called then.
    """
    call = partial(context.run, _call_and_release, partial(fn, *args, **kwargs))
    return await _requests.pool().run(owner, call, wait_seconds=timeout)


async def run_with_disk(
    owner: Hashable, timeout: float, wait_seconds: float, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn``, which works on files, in a thread of the owner's share; a slow disk occupies no other thread.

    ``fn`` releases its connection before it uses the disk. Raises TimeoutError if no thread was free within ``wait_seconds``,
    or if ``fn`` has not returned within ``timeout``: it continues then.
    """
    call = partial(_call_and_release, partial(fn, *args, **kwargs))
    return await _files.pool().run(owner, call, timeout, wait_seconds=wait_seconds)


@cache
def has_loop_calls() -> bool:
    """Whether ``serve_on_loop`` uses the loop: SQLite's functions would block it."""
    return not write_thread.available()


async def serve_on_loop(
    owner: Hashable, timeout: float | None, context: Context, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn``, which answers a request, in ``context``: on this loop, or in a thread if it has to wait for a lock or a
    connection; on SQLite in the write thread.

    Raises TimeoutError if no thread or slot was free within ``timeout`` seconds; ``fn`` was not called then.
    """
    call = partial(fn, *args, **kwargs)
    if not has_loop_calls():
        return await _write_thread().run(owner, timeout, context, call)
    pool = _loop_pool()
    on_loop = partial(_or_elsewhere, call)
    is_suspect = _is_kept_out(owner)
    if not is_suspect:
        optimistic = LoopCall(on_loop, owner, context, is_optimistic=True)
        try:
            answer = await pool.run(optimistic)
        except Repeat as repeat:
            is_suspect = repeat.batch_failed
        except NeedsThread:
            return await serve(owner, timeout, context, call)
        else:
            if not optimistic.is_unchecked:
                return answer
    alone = LoopCall(on_loop, owner, context)
    try:
        answer = await pool.run(alone)
    except NeedsThread as needs:
        # A call that found no connection says nothing about its owner: under load, one failed batch would keep it out for ever.
        if is_suspect and needs.is_locked:
            _keep_out(owner)
        return await serve(owner, timeout, context, call)
    if is_suspect and alone.is_refused:
        _keep_out(owner)
    return answer


_KEPT_OUT_SECONDS = 1.0
_kept_out: dict[Hashable, float] = {}
"""Owners whose calls made batches fail, and until when they are called alone: each failure delays all calls of its batch."""


def _keep_out(owner: Hashable) -> None:
    now = time.monotonic()
    for each in [each for each, until in _kept_out.items() if until < now]:
        del _kept_out[each]
    _kept_out[owner] = now + _KEPT_OUT_SECONDS


def _is_kept_out(owner: Hashable) -> bool:
    return bool(_kept_out) and _kept_out.get(owner, 0.0) > time.monotonic()


def _or_elsewhere(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        before_error_answer(error)
        raise


async def run_on_loop(fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``run``, on this loop; on SQLite in the write thread. What ``fn`` has written is on disk then."""
    call = partial(fn, *args, **kwargs)
    if not has_loop_calls():
        return await _write_thread().run(fn, None, copy_context(), call)
    with suppress(NeedsThread):
        return await _loop_pool().run(LoopCall(call, fn, copy_context()))
    return await run(fn, *args, **kwargs)


_writing: WriteThread | None = None
_writing_changes = threading.Lock()


def _write_thread() -> WriteThread:
    """Started on first use; after ``shut_down`` the next use starts another."""
    global _writing
    found = _writing
    if found is None:
        with _writing_changes:
            found = _writing = _writing or WriteThread({UNKNOWN: max(1, write_thread.MOST // _UNKNOWN_SHARE)})
    return found


def _loop_pool() -> LoopPool:
    return loop_connections.of_loop("calls", loop_connections.MOST, {UNKNOWN: 1})


def before_error_answer(error: Exception) -> None:
    """In a call on the loop: repeat an optimistic call, and one that has to wait for a lock, instead of answering an error."""
    loop_calls.fail(error)
    if loop_calls.current() is not None and is_lock_refused(error):
        raise NeedsThread(is_locked=True) from error


def shut_down() -> None:
    """End the pools' threads and close their connections (in tests and at the end of a process)."""
    global _writing
    loop_connections.close_all()
    with _writing_changes:
        writing, _writing = _writing, None
    if writing is not None:
        writing.close()
    for threads in (_calls, _own, _files, _requests):
        threads.shut_down()
