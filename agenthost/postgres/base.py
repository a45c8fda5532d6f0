"""Django's Postgres backend, its pool's check aside.

Django's pool sends an empty statement before it gives out a connection: a round trip for every request. A server
that has hung up, or is going to, has said so: the connection's socket can be read although nothing was asked.
"""

from __future__ import annotations

import select
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool

Pool = ConnectionPool[psycopg.Connection[Any]]


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
        made: Pool = ConnectionPool(
            kwargs=parameters,
            open=False,
            configure=self._configure_connection,  # type: ignore[attr-defined]  # the stubs lack it
            check=check,
            **options,
        )
        # Of two threads that make one at once, one's stays unopened.
        return self._connection_pools.setdefault(self.alias, made)
