"""Barriers: after a barrier, everything that was committed before it is on disk.

Appends commit without waiting for the disk. A barrier is a commit that does wait, on its own connection; Postgres writes
its log in order, so all earlier commits are on disk too. The process's loop runs barriers, each for all callers that wait
by then (loop_barriers.py); in a process without one a thread does. On SQLite every commit is on disk, and a barrier returns
immediately.

A barrier returns its era: if that is not the era of the append, the database crashed in between and the append may be lost.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import psycopg
from django.db import connection, connections

from sessions_app.core.base import loop_calls, process_loop, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.own_connection import connection_parameters
from sessions_app.core.log.journal.loop_barriers import BARRIER, PAUSE_SECONDS, TIMEOUT_SECONDS, LoopBarriers, resolve

logger = logging.getLogger(__name__)


class _Service:
    """The thread that runs barriers where no loop does, its connection, and the waiting callers."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: list[Future[int | None]] = []
        self._closing = False
        self._connection: psycopg.Connection[Any] | None = None
        self._parameters = connection_parameters("synchronous_commit=on")
        self._thread = supervision.thread(self._serve, "journal-barrier", may_return=lambda: self._closing)
        self._thread.start()

    def ask(self) -> Future[int | None]:
        """A future of the era of a barrier that begins after this call."""
        future: Future[int | None] = Future()
        with self._changed:
            if self._closing:
                raise NotReady
            self._waiting.append(future)
            self._changed.notify()
        return future

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(TIMEOUT_SECONDS)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                waiting, self._waiting = self._waiting, []
                if not waiting:
                    break
            try:
                era = self._pass()
            except psycopg.Error as error:
                logger.warning("barrier_failed error=%s", type(error).__name__)
                for future in waiting:
                    resolve(future, None, NotReady())
            else:
                for future in waiting:
                    resolve(future, era, None)
        self._disconnect()

    def _pass(self) -> int | None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(**self._parameters, autocommit=True)
                row = self._connection.execute(BARRIER).fetchone()
            except psycopg.Error:
                # A retry is safe: if the database crashed in between, the era has changed.
                self._disconnect()
                if self._closing or time.monotonic() > until:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                return None if row is None else row[1]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_service: _Service | None = None
_service_lock = threading.Lock()


def _current_service() -> _Service:
    global _service
    with _service_lock:
        if _service is None or _service.pid != os.getpid():
            _service = _Service()
        return _service


def close() -> None:
    """End the thread and its connection; the next barrier starts another."""
    global _service
    with _service_lock:
        service, _service = _service, None
    if service is not None and service.pid == os.getpid():
        service.close()


atexit.register(close)


_of_loops: dict[asyncio.AbstractEventLoop, LoopBarriers] = {}


def _barriers_of(loop: asyncio.AbstractEventLoop) -> LoopBarriers | None:
    """The barriers of an adopted loop; None for another loop."""
    found = _of_loops.get(loop)
    if found is None:
        with _service_lock:
            found = _of_loops.get(loop)
            if found is None:
                made = LoopBarriers(loop, connection_parameters("synchronous_commit=on"))

                async def close() -> None:
                    await made.close()
                    _of_loops.pop(loop, None)

                if process_loop.attach(loop, close):
                    found = _of_loops[loop] = made
    return found


def passed() -> Future[int | None]:
    """Postgres only: a future of the era of a barrier; NotReady if the database stays unreachable. For threads."""
    loop = process_loop.current()
    # Blocking code in the loop itself would wait for ever.
    if loop is not None and not process_loop.is_running_in(loop):
        barriers = _barriers_of(loop)
        future = None if barriers is None else barriers.ask_from_thread()
        if future is not None:
            return future
    return _current_service().ask()


def passed_async() -> asyncio.Future[int | None]:
    """``passed`` for coroutines."""
    barriers = _barriers_of(asyncio.get_running_loop())
    future = None if barriers is None else barriers.ask()
    return asyncio.wrap_future(passed()) if future is None else future


class Barrier:
    """A started barrier for a commit of ``era``; None: the commit is on disk already."""

    def __init__(self, era: int | None) -> None:
        self._era = era
        self._passed: Future[int | None] | asyncio.Future[int | None] | None = None
        if era is not None and connection.vendor == "postgresql":
            self._passed = passed() if loop_calls.current() is None else passed_async()

    def wait(self) -> None:
        """Wait for the barrier; NotReady if the database is unreachable or crashed since: the commit may then be lost."""
        if self._passed is None:
            return
        try:
            if isinstance(self._passed, Future):
                passed_in = self._passed.result(TIMEOUT_SECONDS * 2)
            else:
                passed_in = loop_calls.wait_for(asyncio.wait_for(self._passed, TIMEOUT_SECONDS * 2))
        except (FutureTimeout, TimeoutError):
            raise NotReady from None
        if passed_in != self._era:
            raise NotReady


def wait(era: int | None) -> None:
    """Return when commits of ``era`` before this call are on disk; None: they are already."""
    Barrier(era).wait()


def barrier() -> None:
    """Return when everything committed before this call is on disk."""
    if connection.vendor == "postgresql":
        try:
            passed().result(TIMEOUT_SECONDS * 2)
        except FutureTimeout:
            raise NotReady from None


async def barrier_async() -> None:
    """``barrier`` for coroutines."""
    if connections["default"].vendor == "postgresql":
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS * 2):
                await passed_async()
        except TimeoutError:
            raise NotReady from None
