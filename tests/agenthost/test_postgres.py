"""Connections out of the pool: the well ones at once, the dead ones never."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection, connections
from psycopg_pool import ConnectionPool

from sessions_app.core import database

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connections['default'].vendor != 'postgresql'", reason="about the pool of Postgres"),
]

_MORE_THAN_THE_POOL_HOLDS = 25


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _end(pid: int) -> None:
    parameters = connections["default"].get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if name in parameters}
    with psycopg.connect(**wanted, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s::int, 5000)", (pid,))


def test_a_connection_whose_server_has_gone_is_not_given_out() -> None:
    gone = _backend()
    database.release()
    _end(gone)
    for _ in range(_MORE_THAN_THE_POOL_HOLDS):
        assert _backend() != gone
        database.release()


def test_a_connection_that_is_well_is_given_out_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ConnectionPool, "check_connection", asked.append)
    for _ in range(_MORE_THAN_THE_POOL_HOLDS):
        assert _backend()
        database.release()
    assert asked == []
