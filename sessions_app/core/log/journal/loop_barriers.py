"""Barriers in a loop: one connection, on which each barrier serves all callers that wait by then.

While the connection is up, a barrier is a prepared query that is sent and received by callbacks of the loop, without a task:
through psycopg's own ``execute`` it took three times the CPU (docs/decisions/0047).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from sessions_app.core.base import metrics, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log.journal.postgres import ERA

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
"""Seconds that a barrier waits for a database that is unreachable."""
PAUSE_SECONDS = 0.2
"""The pause after a failed attempt."""

BARRIER = f"select pg_logical_emit_message(true, 'j', ''), {ERA}"
_NAME = "journal_barrier"

Waiting = asyncio.Future[int | None] | Future[int | None]
"""What a caller waits for: the barrier's era, or NotReady."""


class LoopBarriers:
    """Runs barriers in one loop. If the connection is lost, it connects again for as long as callers wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parameters: dict[str, Any]) -> None:
        self._loop = loop
        self._parameters = parameters
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._closing = False
        # Used only in the loop:
        self._sent: list[Waiting] = []
        """The callers of the barrier that is under way."""
        self._retry_until = 0.0
        self._era: int | None = None
        self._connection: AsyncConnection[Any] | None = None
        self._socket = -1
        self._connecting: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    def ask(self) -> asyncio.Future[int | None] | None:
        """In the loop: a future of the era of a barrier that begins after this call; None if it is closing."""
        if self._closing:
            return None
        future: asyncio.Future[int | None] = self._loop.create_future()
        with self._lock:
            self._waiting.append(future)
        self._begin()
        return future

    def ask_from_thread(self) -> Future[int | None] | None:
        """``ask`` for other threads."""
        future: Future[int | None] = Future()
        with self._lock:
            if self._closing:
                return None
            self._waiting.append(future)
            if len(self._waiting) > 1:
                # The barrier of the first one, which has not begun, serves this one too.
                return future
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # The loop is closed.
            return None
        return future

    async def close(self) -> None:
        """Serve the callers that wait, for some seconds, and close the connection."""
        with self._lock:
            self._closing = True
        if self._sent or self._waiting:
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=TIMEOUT_SECONDS)
        if self._connecting is not None:
            self._connecting.cancel()
        self._disconnect()
        self._fail([*self._sent, *self._waiting])

    # In the loop

    def _begin(self) -> None:
        """Begin a barrier for all that wait, unless one is under way: then at its end."""
        if self._sent:
            return
        with self._lock:
            self._sent, self._waiting = self._waiting, []
        if self._sent:
            self._began = time.monotonic()
            self._retry_until = self._began + TIMEOUT_SECONDS
            self._send()
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _end(self, resolve: Callable[[Sequence[Waiting]], None]) -> None:
        sent, self._sent = self._sent, []
        resolve(sent)
        self._begin()

    def _send(self) -> None:
        if self._connection is None:
            self._connecting = supervision.task(self._connect(0), "journal-barrier", may_return=lambda: True)
            return
        try:
            self._connection.pgconn.send_query_prepared(_NAME.encode(), None)
            self._flush(self._connection.pgconn)
        except psycopg.Error as error:
            self._lost(error)

    def _flush(self, pgconn: PGconn) -> None:
        if pgconn.flush():
            self._loop.add_writer(self._socket, self._flush_rest)
        self._watch()

    def _watch(self) -> None:
        """Have ``_receive`` called once the socket can be read. Anew for each call: uvloop stops watching a socket that has an
        error, even if an answer has to be read before it."""
        self._loop.remove_reader(self._socket)
        self._loop.add_reader(self._socket, self._receive)

    def _flush_rest(self) -> None:
        if self._connection is None:
            return
        self._loop.remove_writer(self._socket)
        try:
            self._flush(self._connection.pgconn)
        except psycopg.Error as error:
            self._lost(error)

    def _receive(self) -> None:
        """The socket has an answer, or the server has closed the connection."""
        if self._connection is None:
            return
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    break
                if result.status != ExecStatus.TUPLES_OK:
                    raise psycopg.OperationalError("the barrier failed")
                era = result.get_value(0, 1)
                self._era = None if era is None else int(era)
            else:
                self._watch()
                return
        except psycopg.Error as error:
            self._lost(error)
            return
        if self._sent:
            self._end(self._answer)

    def _answer(self, callers: Sequence[Waiting]) -> None:
        metrics.BARRIER_SECONDS.observe(time.monotonic() - self._began)
        for future in callers:
            resolve(future, self._era, None)

    def _fail(self, callers: Sequence[Waiting]) -> None:
        for future in callers:
            resolve(future, None, NotReady())

    # The connection

    def _lost(self, error: Exception) -> None:
        """Try again while callers wait. That is safe: if the database crashed in between, the era has changed."""
        self._disconnect()
        if not self._sent:
            return
        if self._closing or time.monotonic() > self._retry_until:
            logger.warning("barrier_failed error=%s", type(error).__name__)
            self._end(self._fail)
        else:
            self._connecting = supervision.task(self._connect(PAUSE_SECONDS), "journal-barrier", may_return=lambda: True)

    async def _connect(self, pause: float) -> None:
        await asyncio.sleep(pause)
        connection: AsyncConnection[Any] | None = None
        try:
            # A database that accepts and never answers would hold up every later barrier too.
            async with asyncio.timeout(TIMEOUT_SECONDS):
                connection = await AsyncConnection.connect(**self._parameters, autocommit=True)
                await connection.execute(f"prepare {_NAME} as {BARRIER}")
        except (psycopg.Error, TimeoutError) as error:
            if connection is not None:
                await connection.close()
            self._connecting = None
            self._lost(error)
        else:
            self._connecting = None
            self._connection, self._socket = connection, connection.pgconn.socket
            self._send()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # By its number: libpq closes the socket when it finds the connection lost.
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            connection.pgconn.finish()


def resolve(future: Waiting, era: int | None, error: Exception | None) -> None:
    try:
        if error is None:
            future.set_result(era)
        else:
            future.set_exception(error)
    except (InvalidStateError, asyncio.InvalidStateError):
        # The caller was cancelled.
        pass
