"""Django's Postgres backend with a different connection pool. Differences:

* No statement before each use of a connection, which is a round trip per request. If the server has closed a
  connection or is about to, its socket is readable although no statement was sent.
* The pause between attempts to reconnect does not grow, because leases must be renewed as soon as the database is back.
* In processes that serve requests, waiting for a connection fails early while the server cannot be reached.
* There are connections for calls on the event loop (sessions_app/core/base/loop_calls.py): where psycopg would block, the
  call switches to the loop.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.db.backends.postgresql import base
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg_pool import ConnectionPool, PoolTimeout
from psycopg_pool.pool import AddConnection, MaintenanceTask

from sessions_app.core.base import loop_calls

RV = TypeVar("RV")

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to replace a lost connection."""
_FIRST_WAIT = 0.5
"""Seconds to wait for a connection before failing if the server is away. Short restarts are waited for."""
_LIMITS_TRANSACTIONS = 170000
"""The first version of Postgres with transaction_timeout."""
_LOCK_MILLISECONDS = 100
"""How long a statement on the loop waits for a lock. Its request is then repeated in a thread, where it may wait longer."""


class Pool(ConnectionPool[psycopg.Connection[Any]]):
    """``is_away``: the last attempt to connect failed. Process roles log each change."""

    def __init__(self, **options: Any) -> None:
        self.is_away = False
        super().__init__(connection_class=_reporting_connection(self), **options)

    def set_away(self, reason: str) -> None:
        was_away, self.is_away = self.is_away, True
        if not was_away and settings.AGENTHOST_ROLE:
            log.warning("database_away: %s", " ".join(reason.split()))

    def set_back(self) -> None:
        was_away, self.is_away = self.is_away, False
        if was_away and settings.AGENTHOST_ROLE:
            log.info("database_back")

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        if timeout is not None or self.timeout <= _FIRST_WAIT or settings.AGENTHOST_ROLE == "worker":
            return super().getconn(timeout)
        try:
            return super().getconn(_FIRST_WAIT)
        except PoolTimeout:
            if self.is_away:
                raise
        return super().getconn(self.timeout - _FIRST_WAIT)

    def schedule_task(self, task: MaintenanceTask, delay: float) -> None:
        super().schedule_task(task, min(delay, _LONGEST_PAUSE) if isinstance(task, AddConnection) else delay)


def _reporting_connection(pool: Pool) -> type[psycopg.Connection[Any]]:
    class ReportingConnection(psycopg.Connection[Any]):
        """Reports to the pool whether connecting succeeded."""

        @classmethod
        def connect(cls, *arguments: Any, **options: Any) -> Any:
            try:
                conn = super().connect(*arguments, **options)
            except psycopg.OperationalError as error:
                pool.set_away(reason=str(error))
                raise
            pool.set_back()
            return conn

    return ReportingConnection


def check(connection: psycopg.Connection[Any]) -> None:
    """Raises if the connection is unusable. Sends a statement only if its socket is readable."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        ConnectionPool.check_connection(connection)


class DatabaseWrapper(base.DatabaseWrapper):
    _connection_pools: dict[str, Pool]
    _is_unpooled = False

    @contextmanager
    def unpooled(self) -> Iterator[None]:
        """Use a connection of its own, closed at the end. A pool has threads, and its process could not be forked any more."""
        self._is_unpooled = True
        try:
            yield
        finally:
            self.close()
            self._is_unpooled = False

    @property
    def pool(self) -> Pool | None:
        if self._is_unpooled:
            return None
        existing = self._connection_pools.get(self.alias)
        options = self.settings_dict["OPTIONS"].get("pool")
        if existing is not None or not options or self.settings_dict["NAME"] is None:
            return existing
        parameters = {**self.get_connection_params(), "autocommit": True}
        pool = Pool(
            kwargs=parameters,
            open=False,
            configure=self._configure_connection,  # type: ignore[attr-defined]  # missing in the stubs
            check=check,
            **options,
        )
        # If two threads do this at once, both get the same pool, and the other one stays unopened.
        return self._connection_pools.setdefault(self.alias, pool)

    def for_loop(self) -> LoopDatabaseWrapper:
        """A wrapper of the same database whose connection does not block its event loop."""
        return LoopDatabaseWrapper(self.settings_dict, self.alias)


def _with_limited_transactions(connect: Callable[[], LoopConnection]) -> LoopConnection:
    """A connection whose transactions may take as long as others may be idle in one. Calls on the loop take milliseconds."""
    conn = connect()
    if conn.info.server_version >= _LIMITS_TRANSACTIONS:
        conn.execute("select set_config('transaction_timeout', current_setting('idle_in_transaction_session_timeout'), false)")
    return conn


class LoopConnection(psycopg.Connection[Any]):
    def __del__(self, *_: Any) -> None:
        # Its loop has ended, or its call was cancelled while it connected.
        if hasattr(self, "pgconn"):
            self.pgconn.finish()
        super().__del__()

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if loop_calls.current() is None:
            return super().wait(gen, interval, timeout)
        return loop_calls.wait_for(waiting.wait_async(gen, self.pgconn.socket, interval, timeout))


class LoopDatabaseWrapper(DatabaseWrapper):
    """Django's wrapper of one connection of a loop. Only its pool (sessions_app/core/base/loop_connections.py) closes it."""

    pool = None

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        # Plans are kept: one made while the tables are nearly empty would scan them until they are analyzed.
        options = f"{conn_params.get('options', '')} -c lock_timeout={_LOCK_MILLISECONDS} -c enable_seqscan=off".strip()
        connect = partial(LoopConnection.connect, **{**conn_params, "options": options, "autocommit": True})
        try:
            return loop_calls.wait_for(asyncio.to_thread(_with_limited_transactions, connect))
        except psycopg.OperationalError as error:
            # The pool of the threads waits for a database that is away, and reports it.
            raise loop_calls.NeedsThread from error

    @property
    def limits_transactions(self) -> bool:
        """Whether the server ends a transaction that takes too long, also while it waits for a statement."""
        return bool(self.connection.info.server_version >= _LIMITS_TRANSACTIONS)

    def is_usable(self) -> bool:
        """Whether the server has neither closed the idle connection nor sent anything, as it does before it closes it."""
        poll = select.poll()
        poll.register(self.connection.fileno(), select.POLLIN)
        return not poll.poll(0)

    def is_idle(self) -> bool:
        """Whether the connection is open and outside a transaction, and all its answers were read."""
        return self.is_answered() and self.connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def is_answered(self) -> bool:
        """Whether the connection is open, and all answers of its last pipeline were read."""
        return not self.connection.closed and self.connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF


def _checks_for_loops(method: Any) -> Any:
    """Django refuses these methods in a thread with a running loop, because they would block it."""
    return getattr(method, "__wrapped__", None)


for _name in dir(LoopDatabaseWrapper):
    if (_unchecked := _checks_for_loops(getattr(LoopDatabaseWrapper, _name))) is not None:
        setattr(LoopDatabaseWrapper, _name, _unchecked)
