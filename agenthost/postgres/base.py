"""Django's Postgres backend with a different connection pool. Differences:

* No statement before each use of a connection, which is a round trip per request. If the server has closed a
  connection or is about to, its socket is readable although no statement was sent.
* The pause between attempts to reconnect does not grow, because leases must be renewed as soon as the database is back.
* In processes that serve requests, waiting for a connection fails early while the server cannot be reached.
"""

from __future__ import annotations

import logging
import select
from typing import Any

import psycopg
from django.conf import settings
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool, PoolTimeout
from psycopg_pool.pool import AddConnection, MaintenanceTask

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to replace a lost connection."""
_FIRST_WAIT = 0.5
"""Seconds to wait for a connection before failing if the server is away. Short restarts are waited for."""


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

    @property
    def pool(self) -> Pool | None:
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
