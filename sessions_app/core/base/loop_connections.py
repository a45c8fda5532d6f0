"""Database connections for calls on the event loop (loop_calls.py): a pool per loop, and how Django finds its connection.

A call takes a connection when it first uses the database, and keeps it to its end. Its statements wait only shortly for
locks; a call that needs longer is made again in a thread. Postgres only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db import connections

from agents_app.fair.slots import FairSlots
from sessions_app.core.base import loop_calls
from sessions_app.core.base.loop_calls import LoopCall, NeedsThread

T = TypeVar("T")

Wrapper = Any
"""``agenthost.postgres.base.LoopDatabaseWrapper``, which this layer cannot import."""

MOST = 3
"""Connections of a loop. Most calls are part of a batch, which has its own, and the others need one for a millisecond."""
ALIAS = "default"
_WRAPPER, _POOL = "wrapper", "pool"
SUBSTITUTE = "substitute"
"""What a call uses instead of a connection while its transaction is part of a batch (core/log/journal/batches.py)."""


class _Connections:
    """Django's connections by alias: those of the running call on the loop, else those of the thread."""

    def __init__(self, of_threads: Any) -> None:
        object.__setattr__(self, "_of_threads", of_threads)

    def __getattr__(self, alias: str) -> Any:
        call = loop_calls.current()
        if call is None or alias != ALIAS:
            return getattr(self._of_threads, alias)
        if SUBSTITUTE in call.local:
            return call.local[SUBSTITUTE]
        wrapper = call.local.get(_WRAPPER)
        if wrapper is None:
            wrapper = call.local[_WRAPPER] = call.local[_POOL].take(call)
        return wrapper

    def __setattr__(self, alias: str, wrapper: Any) -> None:
        setattr(self._of_threads, alias, wrapper)

    def __delattr__(self, alias: str) -> None:
        delattr(self._of_threads, alias)


def substitute() -> Any:
    """What the running call uses instead of a connection, if it has something."""
    call = loop_calls.current()
    return None if call is None else call.local.get(SUBSTITUTE)


def _thread_wrapper() -> Any:
    """A wrapper of this thread's kind, which was never connected."""
    return connections.create_connection(ALIAS)


def install() -> None:
    """Let Django's ``connections`` give calls on the loop their own connections."""
    handler: Any = connections
    if not isinstance(handler._connections, _Connections):
        handler._connections = _Connections(handler._connections)


class LoopPool:
    """The connections of one loop: at most ``most``, at most half of them for one owner."""

    def __init__(self, most: int, limits: Mapping[Hashable, int]) -> None:
        self._slots = FairSlots(most, limits)
        self._idle: list[Wrapper] = []
        self._closed = False

    async def run(self, call: LoopCall[T]) -> T:
        """The result of a call on this loop. NeedsThread if it needs a connection and none is free for its owner."""
        call.local[_POOL] = self
        try:
            return await loop_calls.run(call)
        finally:
            if (wrapper := call.local.pop(_WRAPPER, None)) is not None:
                self._give_back(call, wrapper)

    def take(self, call: LoopCall[Any]) -> Wrapper:
        """An idle connection, or a new one, which connects on first use."""
        if not self._slots.take_now(call.owner):
            # Threads wait for a connection, and share them fairly.
            raise NeedsThread
        try:
            while self._idle:
                wrapper = self._idle.pop()
                if wrapper.is_usable():
                    return wrapper
                wrapper.connection.close()
            return _thread_wrapper().for_loop()
        except BaseException:
            self._slots.give_back(call.owner)
            raise

    def _give_back(self, call: LoopCall[Any], wrapper: Wrapper) -> None:
        self._slots.give_back(call.owner)
        if wrapper.connection is None:
            return
        if self._closed or call.is_cancelled or wrapper.in_atomic_block or not wrapper.is_idle():
            wrapper.connection.close()
        else:
            self._idle.append(wrapper)

    def close(self) -> None:
        """Close the idle connections, and the others when their calls end."""
        self._closed = True
        for wrapper in self._idle:
            wrapper.connection.close()
        self._idle.clear()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, LoopPool]] = WeakKeyDictionary()


def of_loop(name: str, most: int, limits: Mapping[Hashable, int]) -> LoopPool:
    """The pool of this name of the running loop; created on first use."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    found = pools.get(name)
    if found is None:
        install()
        found = pools[name] = LoopPool(most, limits)
    return found


def close_all() -> None:
    """Close the pools of all loops; the next calls open others."""
    of_loops = list(_pools.values())
    _pools.clear()
    for pools in of_loops:
        for pool in pools.values():
            pool.close()
