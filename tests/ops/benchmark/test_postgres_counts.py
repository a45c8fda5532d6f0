"""Counts of a Postgres server's statements and WAL fsyncs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from ops import services
from ops.benchmark import postgres_counts


@pytest.fixture(scope="module")
def postgres() -> Iterator[services.Postgres]:
    with services.folder() as home:
        server = services.Postgres(home, crash_safe=True)
        server.start()
        try:
            yield server
        finally:
            server.stop()


ASKED = "show log_statement"


def until_logged(client: psycopg.Connection[tuple[str, ...]], wanted: str) -> None:
    """A backend reads the settings that were loaded again a moment later."""
    end = time.monotonic() + 60
    while client.execute(ASKED).fetchone() != (wanted,):
        assert time.monotonic() < end


def test_statements_are_counted_by_client_only_while_they_are_logged(postgres: services.Postgres) -> None:
    with psycopg.connect(postgres.url(), autocommit=True, application_name="a client") as client:
        client.execute("select 1")
        with postgres_counts.logged_statements(postgres) as logged:
            until_logged(client, "all")
            for number in range(3):
                client.execute("select %s::int", (number,), prepare=True)
            client.execute("select 'two\nlines'")
            counted = logged.by_client()["a client"]
        until_logged(client, "none")
        client.execute("select 2")
        after = logged.by_client()["a client"]
    for each in (counted, after):
        each.pop(ASKED, None)
    assert counted == {"select $1::int": 3, "select 'two\n\tlines'": 1}
    assert after == counted


def test_a_commit_is_at_least_one_fsync(postgres: services.Postgres) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as client:
        before = postgres_counts.wal_fsyncs(postgres)
        client.execute("create table counted (n int)")
        for number in range(5):
            client.execute("insert into counted values (%s)", (number,))
        # This backend reports now what it would report when it has been idle.
        client.execute("select pg_stat_force_next_flush()")
        assert postgres_counts.wal_fsyncs(postgres) >= before + 5
