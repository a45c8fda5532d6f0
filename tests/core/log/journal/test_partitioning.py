"""The migration that divides the table of events, on a database that has events."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

migration: Any = importlib.import_module("sessions_app.migrations.0058_partition_events")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only Postgres has partitions"),
]

# As the releases before it have it, with the column that the migration before it adds.
UNDIVIDED = """
create table event (tenant_id bigint not null, seq bigint not null, session_id bigint not null, kind varchar(40) not null,
 data text not null, fence integer, at timestamptz not null default statement_timestamp(), partition smallint not null default 0);
alter table event add primary key (tenant_id, seq);
create index event_of_session on event (session_id, seq);
create index event_run_start on event (session_id, seq) where kind in ('turn_started', 'turn_resumed');
insert into event (tenant_id, seq, session_id, kind, data) select 1, n, n % 10, 'text_delta', '{}' from generate_series(1, 500) n;
"""


@pytest.fixture
def undivided() -> Iterator[None]:
    """A schema with such a table, before that of the tests."""
    with connection.cursor() as cursor:
        cursor.execute("create schema undivided")
        cursor.execute("set search_path to undivided, public")
        cursor.execute(UNDIVIDED)
    yield
    with connection.cursor() as cursor:
        cursor.execute("set search_path to default")
        cursor.execute("drop schema undivided cascade")


def rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def divide() -> None:
    migration.partition(None, SimpleNamespace(connection=connection))


FILES = "select oid, relfilenode from pg_class where relnamespace = 'undivided'::regnamespace and relfilenode != 0 order by oid"


def test_nothing_is_copied_or_indexed_again_and_all_is_there(undivided: None) -> None:
    before = rows(FILES)
    divide()
    assert set(before) <= set(rows(FILES))
    assert rows("select count(*), min(partition), max(partition) from event") == [(500, 0, 0)]
    assert rows("select partstrat::text from pg_partitioned_table where partrelid = 'event'::regclass") == [("l",)]
    # Each index of the table has one in every partition, none of them left invalid.
    for index in ("event_of_session", "event_run_start"):
        attached = rows(f"select count(*) from pg_inherits where inhparent = '{index}'::regclass")
        assert attached == [(1 + len(migration.RING),)]
        assert rows(f"select indisvalid from pg_index where indexrelid = '{index}'::regclass") == [(True,)]
    insert = "insert into event (tenant_id, seq, session_id, kind, data{}) values (1, {}, 3, 'text_delta', '{{}}'{})"
    with connection.cursor() as cursor:
        cursor.execute(insert.format("", 501, ""))
        cursor.execute(insert.format(", partition", 502, ", 3"))
    assert rows("select seq, tableoid::regclass::text from event where seq > 500 order by seq") == [
        (501, "event_kept"),
        (502, "event_ring_3"),
    ]
    divide()
    assert rows("select count(*) from event") == [(502,)]


def test_an_interruption_is_repeated(undivided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migration, "SWAP", migration.SWAP + "select 1 / 0;")
        with pytest.raises(Exception, match="division by zero"):
            divide()
    assert rows("select relkind::text from pg_class where oid = 'event'::regclass") == [("r",)]
    divide()
    assert rows("select count(*) from event") == [(500,)]


def test_a_reader_is_waited_for_in_short_tries_and_then_named(undivided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT", "20ms")
    monkeypatch.setattr(migration, "TRIES", 2)
    parameters = connection.get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if name in parameters}
    with psycopg.connect(**wanted) as reader:
        reader.execute("select count(*) from undivided.event")
        with pytest.raises(OperationalError, match="lock timeout"):
            divide()
        assert rows("select count(*) from event") == [(500,)]
    divide()
    assert rows("select count(*) from event") == [(500,)]
