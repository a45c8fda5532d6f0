"""Django's Postgres backend, its pool aside.

Django's pool sends an empty statement before it gives out a connection: a round trip for every request. A server
that has hung up, or is going to, has said so: the connection's socket can be read although nothing was asked.

Its pool waits longer and longer between two attempts to connect, in the end for minutes. This one does not: leases
have to be renewed as soon as the database is back.

And whoever waits for a connection while there is no server to connect to waits in vain: in a process that answers
requests it is told so soon, and comes again.
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
_TOLD_AFTER = 0.5
"""Seconds after which it is asked whether there is a server at all. Short restarts are waited for."""


class Pool(ConnectionPool[psycopg.Connection[Any]]):
    """``is_away``: the last attempt to connect failed. The log gets one line for each change, from processes that serve."""

    def __init__(self, **options: Any) -> None:
        self.is_away = False
        super().__init__(connection_class=_telling(self), **options)

    def changed(self, *, away: bool, why: str = "") -> None:
        was_away, self.is_away = self.is_away, away
        if away == was_away or not settings.AGENTHOST_ROLE:
            return
        if away:
            log.warning("database_away: %s", " ".join(why.split()))
        else:
            log.info("database_back")

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        if timeout is not None or self.timeout <= _TOLD_AFTER or settings.AGENTHOST_ROLE == "worker":
            return super().getconn(timeout)
        try:
            return super().getconn(_TOLD_AFTER)
        except PoolTimeout:
            if self.is_away:
                raise
        return super().getconn(self.timeout - _TOLD_AFTER)

    def schedule_task(self, task: MaintenanceTask, delay: float) -> None:
        super().schedule_task(task, min(delay, _LONGEST_PAUSE) if isinstance(task, AddConnection) else delay)


def _telling(pool: Pool) -> type[psycopg.Connection[Any]]:
    class Telling(psycopg.Connection[Any]):
        """Tells its pool whether there was a server."""

        @classmethod
        def connect(cls, *arguments: Any, **options: Any) -> Any:
            try:
                made = super().connect(*arguments, **options)
            except psycopg.OperationalError as error:
                pool.changed(away=True, why=str(error))
                raise
            pool.changed(away=False)
            return made

    return Telling


def check(connection: psycopg.Connection[Any]) -> None:
    """Raises if the connection is of no use any more. Only one that has something to say is asked."""
    heard = select.poll()
    heard.register(connection.fileno(), select.POLLIN)
    if heard.poll(0):
        ConnectionPool.check_connection(connection)


class DatabaseWrapper(base.DatabaseWrapper):
    _connection_pools: dict[str, Pool]

    @property
    def pool(self) -> Pool | None:
        known = self._connection_pools.get(self.alias)
        options = self.settings_dict["OPTIONS"].get("pool")
        if known is not None or not options or self.settings_dict["NAME"] is None:
            return known
        parameters = {**self.get_connection_params(), "autocommit": True}
        made = Pool(
            kwargs=parameters,
            open=False,
            configure=self._configure_connection,  # type: ignore[attr-defined]  # the stubs lack it
            check=check,
            **options,
        )
        # Of two threads that make one at once, one's stays unopened.
        return self._connection_pools.setdefault(self.alias, made)
