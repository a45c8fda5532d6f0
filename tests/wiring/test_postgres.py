"""The Postgres connection pool: dead connections, reconnection, early failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from psycopg_pool import ConnectionPool, PoolTimeout
from psycopg_pool.pool import AddConnection
from pytest_django import Settings

from agenthost.postgres.base import Pool
from ops.services import free_port
from sessions_app.core.base import database

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
        assert other.execute("select pg_terminate_backend(%s::int, 60000)", (pid,)).fetchone() == (True,)


def test_a_connection_closed_by_the_server_is_not_used() -> None:
    gone = _backend()
    database.release()
    _end(gone)
    for _ in range(_MORE_THAN_THE_POOL_HOLDS):
        assert _backend() != gone
        database.release()


def test_an_open_connection_is_used_without_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ConnectionPool, "check_connection", asked.append)
    for _ in range(_MORE_THAN_THE_POOL_HOLDS):
        assert _backend()
        database.release()
    assert asked == []


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool for a server that does not exist: nothing listens on its port."""
    made = Pool(
        kwargs={"host": "127.0.0.1", "port": free_port(), "dbname": "x", "connect_timeout": "5"},
        open=False,
        min_size=1,
        max_size=2,
        timeout=3600.0,
    )
    made.open()
    yield made
    made.close(0)


def test_waiting_for_a_connection_fails_early_while_postgres_is_down(pool: Pool, settings: Any) -> None:
    settings.AGENTHOST_ROLE = "web"
    # After the first failed attempt, getconn fails early instead of waiting for an hour.
    until = time.monotonic() + 90
    while not pool.is_away:
        assert time.monotonic() < until
        time.sleep(0.01)
    with pytest.raises(PoolTimeout):
        pool.getconn()


def test_the_pause_between_reconnection_attempts_does_not_grow(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg doubles the pause with each attempt; a worker's leases would run out meanwhile."""
    pauses: list[float] = []
    monkeypatch.setattr(ConnectionPool, "schedule_task", lambda _, task, delay: pauses.append(delay))
    attempt = AddConnection(pool)
    for tried_for in (1.0, 32.0, 300.0):
        pool.schedule_task(attempt, tried_for)
    assert pauses == [1.0, 1.0, 1.0]


def test_a_busy_pool_is_waited_for() -> None:
    parameters = connections["default"].get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if name in parameters}
    with Pool(kwargs=wanted, min_size=1, max_size=1, timeout=3600.0) as busy:
        taken = busy.getconn()
        waiting = ThreadPoolExecutor(1)
        got = waiting.submit(busy.getconn)
        with pytest.raises(TimeoutError):
            # Longer than the wait after which getconn fails while the server is away.
            got.result(1.5)
        busy.putconn(taken)
        busy.putconn(got.result(90))
        waiting.shutdown()


def test_an_outage_of_postgres_is_logged_once_at_its_start_and_end(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.AGENTHOST_ROLE = "web"
    caplog.set_level("INFO")
    parameters = connections["default"].get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if name in parameters}
    pool = Pool(kwargs={**wanted, "port": free_port()}, min_size=0, max_size=2, open=False)
    connect = pool.connection_class.connect
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError):
            connect(**{**wanted, "port": free_port()})
    connect(**wanted).close()
    said = [record.getMessage() for record in caplog.records if record.name == "agenthost.postgres.base"]
    assert [line.partition(":")[0] for line in said] == ["database_away", "database_back"]


def test_single_connection_attempts_are_not_logged() -> None:
    pool = logging.getLogger("psycopg.pool")
    dropped = pool.makeRecord("psycopg.pool", logging.WARNING, "", 0, "error connecting in %r: %s", ("pool-1", "x"), None)
    kept = pool.makeRecord("psycopg.pool", logging.WARNING, "", 0, "rolling back returned connection: %s", ("c",), None)
    assert (pool.filter(dropped), bool(pool.filter(kept))) == (False, True)
