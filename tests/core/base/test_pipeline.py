"""Statements in one round trip: values of all types, errors in each position, lost connections, invalidated statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import connection

from sessions_app.core.base import pipeline as pipelines
from sessions_app.core.base.own_connection import connection_parameters
from sessions_app.core.base.pipeline import Pipeline, Rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connect(on_postgres: bool) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    if not on_postgres:
        pytest.skip("only Postgres has pipelines")
    opened = []

    def connect(*, autocommit: bool = True) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(**connection_parameters("synchronous_commit=on"), autocommit=autocommit))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect()


def run(conn: psycopg.Connection[Any], sql: str, *params: Any) -> Rows:
    """The rows of one statement, alone in its pipeline."""
    pipeline = Pipeline(conn)
    pipeline.add(sql, params)
    pipeline.sync()
    return pipeline.rows()[0]


def groups_of(conn: psycopg.Connection[Any], *groups: list[str]) -> Pipeline:
    pipeline = Pipeline(conn)
    for statements in groups:
        for each in statements:
            pipeline.add(each)
        pipeline.sync()
    return pipeline


def terminate(conn: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 60000)", [conn.info.backend_pid])


NASTY = "back\\slash \"quotes\" 'single' {braces},commas null NULL \t\n %s $1 é 漢 😀"
AT = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))


@pytest.mark.parametrize(
    ("cast", "value"),
    [
        ("text", None),
        ("text", ""),
        ("text", NASTY),
        ("boolean", True),
        ("boolean", False),
        ("bigint", -(2**63)),
        ("numeric", Decimal(2**80)),
        ("double precision", 0.1 + 0.2),
        ("double precision", 1e300),
        ("double precision", float("-inf")),
        ("bytea", b"\x00\xff\\x41'\""),
        ("timestamptz", AT),
        ("timestamptz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("text[]", [NASTY, "", "null", None, "{}", "a,b"]),
        ("text[]", []),
        ("bigint[]", [1, None, -5]),
        ("boolean[]", [True, None, False]),
        ("bytea[]", [b"\x00\\", b"", None]),
        ("timestamptz[]", [AT, None]),
    ],
    ids=str,
)
def test_values_come_back_as_they_were_sent(conn: psycopg.Connection[Any], cast: str, value: Any) -> None:
    assert run(conn, f"select %s::{cast}", value) == [(value,)]


@pytest.mark.parametrize("value", [bytearray(b"\x00a"), memoryview(b"\x00a")], ids=["bytearray", "memoryview"])
def test_other_kinds_of_bytes_are_stored_as_bytes(conn: psycopg.Connection[Any], value: Any) -> None:
    """Django returns a binary column as a memoryview."""
    assert run(conn, "select %s::bytea", value) == [(b"\x00a",)]


@pytest.mark.parametrize("value", ["cut\0off", ["cut\0off"]], ids=["text", "list"])
def test_a_text_with_a_nul_is_refused_and_not_cut_off(conn: psycopg.Connection[Any], value: Any) -> None:
    with pytest.raises(psycopg.DataError):
        run(conn, "select %s::text", value)
    assert run(conn, "select 1") == [(1,)]


@pytest.mark.parametrize("good_ones", [0, 1], ids=["first", "later"])
def test_a_value_that_cannot_be_sent_leaves_the_connection_usable(conn: psycopg.Connection[Any], good_ones: int) -> None:
    pipeline = Pipeline(conn)
    for _ in range(good_ones):
        pipeline.add("select 1")
    with pytest.raises(UnicodeEncodeError):
        pipeline.add("select %s::text", ("\ud800",))
    assert conn.execute("select 2").fetchone() == (2,)
    assert run(conn, "select 1") == [(1,)]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_an_error_of_its_statement_only(conn: psycopg.Connection[Any], value: int) -> None:
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        run(conn, "select %s::bigint", value)
    assert run(conn, "select %s::bigint", 7) == [(7,)]


@pytest.mark.parametrize("place", range(3))
def test_an_error_fails_the_rest_of_its_group_and_later_groups_are_dropped(conn: psycopg.Connection[Any], place: int) -> None:
    statements = ["select 1", "select 2", "select 3"]
    statements[place] = "select 1 / 0"
    for _ in range(2):
        # The second time, what could be prepared is prepared already.
        pipeline = groups_of(conn, statements, ["select 4"], ["select 5"])
        with pytest.raises(psycopg.errors.DivisionByZero):
            pipeline.rows()
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert run(conn, "select 6") == [(6,)]


@pytest.mark.parametrize("place", range(3))
def test_an_error_in_a_later_group_leaves_the_groups_before_it(conn: psycopg.Connection[Any], place: int) -> None:
    groups = [["select 0"], ["select 1"], ["select 2"]]
    groups[place] = ["select 1 / 0"]
    pipeline = groups_of(conn, *groups)
    for number in range(place):
        assert pipeline.rows() == [[(number,)]]
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.rows()
    assert run(conn, "select 6") == [(6,)]


def test_statements_that_are_new_after_a_failed_group_can_be_prepared(conn: psycopg.Connection[Any]) -> None:
    """The failed group's preparations are undone, those of the group behind it are not."""
    with pytest.raises(psycopg.errors.DivisionByZero):
        groups_of(conn, ["select 1 / 0", "select 1", "select 2"], ["select 3", "select 4"]).rows()
    for number in range(1, 12):
        assert run(conn, f"select {number}") == [(number,)]


def test_a_failed_statement_of_a_transaction_stores_nothing(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn, other = connect(autocommit=False), connect()
    with pytest.raises(psycopg.errors.DivisionByZero):
        groups_of(conn, ["create table half_done (x int)", "select 1 / 0", "commit"]).rows()
    conn.rollback()
    assert run(other, "select to_regclass('half_done')") == [(None,)]


@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "between two groups"])
def test_a_connection_that_the_server_ends_is_an_operational_error(conn: psycopg.Connection[Any], sent: bool) -> None:
    if sent:
        pipeline = groups_of(conn, ["select 1"], ["select pg_terminate_backend(pg_backend_pid())", "select 2"], ["select 3"])
        assert pipeline.rows() == [[(1,)]]
    else:
        terminate(conn)
        pipeline = groups_of(conn, ["select 1"], ["select 2"])
    with pytest.raises(psycopg.OperationalError):
        pipeline.rows()
    assert conn.closed
    with pytest.raises(psycopg.OperationalError):
        Pipeline(conn)


@pytest.mark.parametrize("how", ["discard all", "deallocate all"])
def test_statements_that_were_deallocated_are_prepared_again(conn: psycopg.Connection[Any], how: str) -> None:
    assert run(conn, "select 1") == [(1,)]
    conn.execute(how)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        run(conn, "select 1")
    assert run(conn, "select 1") == [(1,)]


def test_a_statement_whose_table_was_changed_works_again_after_one_error(conn: psycopg.Connection[Any]) -> None:
    conn.execute("create temporary table changed (x int)")
    conn.execute("insert into changed values (1)")
    assert run(conn, "select * from changed") == [(1,)]
    conn.execute("alter table changed add y text default 'new'")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        run(conn, "select * from changed")
    assert run(conn, "select * from changed") == [(1, "new")]


def test_more_statements_than_are_prepared_work_too(conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "_MOST_PREPARED", 3)
    for _ in range(2):
        for number in range(6):
            assert run(conn, f"select {number} + %s", number) == [(2 * number,)]
    assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (3,)


def test_large_groups_and_values_do_not_block(conn: psycopg.Connection[Any]) -> None:
    """More than the sockets take at once, in both directions."""
    large = "x" * 1_000_000
    pipeline = Pipeline(conn)
    for _ in range(20):
        pipeline.add("select %s::text", (large,))
    pipeline.sync()
    assert [len(rows[0][0]) for rows in pipeline.rows()] == [len(large)] * 20


def test_answers_of_a_flushed_group_come_before_its_transaction_ends(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn, other = connect(), connect()
    run(conn, "create temporary table kept (x int)")
    other.execute("select pg_advisory_lock(54)")
    pipeline = Pipeline(conn)
    pipeline.add("insert into kept values (1) returning x")
    pipeline.flush()
    pipeline.add("select pg_advisory_xact_lock(54)")
    pipeline.sync()
    pipeline.add("select count(*) from kept")
    pipeline.sync()
    assert pipeline.rows() == [[(1,)]]
    other.execute("select pg_advisory_unlock(54)")
    pipeline.rows()
    assert pipeline.rows() == [[(1,)]]


@pytest.mark.parametrize("place", range(3))
def test_a_flushed_group_is_undone_with_the_rest_of_its_transaction(
    connect: Callable[..., psycopg.Connection[Any]], place: int
) -> None:
    conn = connect()
    run(conn, "create temporary table kept (x int)")
    statements = ["insert into kept values (1)", "insert into kept values (2)", "insert into kept values (3)"]
    statements[place] = "select 1 / 0"
    pipeline = Pipeline(conn)
    for number, each in enumerate(statements):
        pipeline.add(each)
        if number < 2:
            pipeline.flush()
    pipeline.sync()
    for _ in range(place):
        pipeline.rows()
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.rows()
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert run(conn, "select count(*) from kept") == [(0,)]


def test_a_constraint_that_fails_at_the_end_of_an_implicit_transaction_is_its_groups_error(
    conn: psycopg.Connection[Any],
) -> None:
    run(conn, "create temporary table once (x int, unique (x) deferrable initially deferred)")
    pipeline = groups_of(conn, ["insert into once values (1)", "insert into once values (1)"], ["select 1"])
    with pytest.raises(psycopg.errors.UniqueViolation):
        pipeline.rows()
    assert run(conn, "select count(*) from once") == [(0,)]
