"""Hand-written SQL for the statements of every turn; on Postgres they are prepared once per connection.

The ORM takes longer to build such a statement than the database to run it, and sends the values inside the text, so that
it is planned each time. Parameters are ``%s``; statements run on Django's connection and in its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from django.db import connection, transaction

from sessions_app.core.base import loop_calls, loop_connections
from sessions_app.core.base.pipeline import Pipeline, Rows
from sessions_app.core.base.stacked_queries import Types, stacked, unstacked


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with ``%s`` parameters, the same text for both databases.

    ``is_check``: a query that raises if the statements behind it must not be executed; on Postgres it may be joined with them.
    ``types``: the Postgres types of a query's columns. Queries that have them may be stacked (stacked_queries.py): the order
    of their rows is not kept.
    """

    sql: str
    params: Sequence[Any] = ()
    is_check: bool = False
    types: Types = ()


BATCH = "batch"
"""The vendor of statements in a batch of transactions (core/log/journal/batches.py)."""
_PLACEHOLDERS = {
    "postgresql": {
        "now": "statement_timestamp()",
        "seconds_left": "extract(epoch from t.deadline_at - statement_timestamp())",
        "next_turn": "nextval(pg_get_serial_sequence('sessions_app_turn', 'id'))",
        "version_of_key": "k.xmin::text || '/' || t.xmin::text",
        "moment": "statement_timestamp() + %s * interval '1 second'",
        "for_change": "for no key update",
        "for_change_of_turn": "for no key update of t skip locked",
        "octets": "octet_length",
        "as_json": "to_json",
        "octets_type": "text",
        "among": "= any(%s::bigint[])",
        "among_texts": "= any(%s::text[])",
    },
    # In a batch, which does not wait for a locked row: its call sees no row, and is repeated alone.
    BATCH: {"for_change": "for no key update skip locked"},
    "sqlite": {
        "seconds_left": "(julianday(t.deadline_at) - julianday('now')) * 86400.0",
        "next_turn": "null",
        "version_of_key": "''",
        "now": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')",
        "moment": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %s || ' seconds')",
        "for_change": "",
        "for_change_of_turn": "",
        "octets": "length",
        "as_json": "json_quote",
        "octets_type": "blob",
        "among": "in (select value from json_each(%s))",
        "among_texts": "in (select value from json_each(%s))",
    },
}


@lru_cache(maxsize=256)
def rendered(sql: str, vendor: str) -> str:
    """The statement with the placeholders (``{now}`` and others) of one database."""
    if vendor == BATCH:
        sql = sql.replace("{for_change}", _PLACEHOLDERS[BATCH]["for_change"])
        vendor = "postgresql"
    for name, text in _PLACEHOLDERS[vendor].items():
        sql = sql.replace("{" + name + "}", text)
    return sql


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows. The statement may contain placeholders that differ between the databases.

    ``{now}``, ``{moment}`` (now plus a number of seconds), ``{for_change}`` (lock the row), ``{among}`` (in a list of numbers),
    ``{among_texts}`` (in a list of texts), ``{octets}(cast(… as {octets_type}))`` (length in bytes),
    ``cast({as_json}(…) as text)`` (a text as JSON).
    """
    if connection.vendor == "postgresql":
        return _on_postgres([Statement(sql, params)])[0]
    with connection.cursor() as cursor:
        cursor.execute(rendered(sql, connection.vendor), adapted(params))
        return list(cursor.fetchall())


def row(sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """Run one statement and return its first row, if there is one."""
    found = rows(sql, params)
    return found[0] if found else None


def rows_of_each(statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """Run the statements in order and return the rows of each; on Postgres in one round trip, stacked if they can be."""
    if connection.vendor != "postgresql":
        return [rows(statement.sql, statement.params) for statement in statements]
    if (batch := loop_connections.substitute()) is not None:
        found: list[Rows] = batch.read(statements)
        return found
    if (stack := Stack.of(statements)) is not None:
        return stack.rows(_on_postgres([stack.statement])[0])
    return _on_postgres(statements)


def execute_and_read(statements: Sequence[Statement], queries: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """Run the statements, then the queries, and return the rows of each query; on Postgres in one round trip."""
    if connection.vendor == "postgresql":
        return _on_postgres([*statements, *queries])[len(statements) :]
    execute(statements)
    return rows_of_each(queries)


def execute(statements: Sequence[Statement]) -> None:
    """Run the statements in order and return nothing; on Postgres in one round trip."""
    if connection.vendor == "postgresql":
        _on_postgres(statements)
        return
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(rendered(statement.sql, connection.vendor), adapted(statement.params))


_IMPLICIT = "implicit_transaction"


def _implicit_transaction() -> Pipeline | None:
    """The pipeline of the running call's implicit transaction."""
    call = loop_calls.current()
    return None if call is None else call.local.get(_IMPLICIT)


@contextmanager
def implicit_transaction() -> Iterator[None]:
    """On the loop: a transaction without BEGIN and COMMIT, for this module's functions only, ended by ``execute_and_commit``.

    What is sent to Postgres without a sync in between is one transaction; it may send the answers before the sync. A server
    that waits there does not count as idle in a transaction, so a process that hangs could hold its locks for ever. A
    limit for whole transactions replaces that of idle ones; where the server is too old for it, BEGIN is sent.
    """
    call = loop_calls.current()
    assert call is not None
    wrapper: Any = connection
    wrapper.ensure_connection()
    if not wrapper.limits_transactions:
        with transaction.atomic(durable=True):
            yield
        return
    with wrapper.wrap_database_errors:
        pipeline = call.local[_IMPLICIT] = Pipeline(wrapper.connection)
    try:
        yield
    finally:
        del call.local[_IMPLICIT]
        if pipeline.is_open and pipeline.is_answered:
            with suppress(psycopg.Error):
                pipeline.roll_back()


@dataclass(frozen=True, slots=True)
class Stack:
    """Queries as one statement, and the rows of each from its rows. Postgres only."""

    statement: Statement
    _queries: Sequence[tuple[str, Types]]

    @staticmethod
    def of(statements: Sequence[Statement]) -> Stack | None:
        """None if they cannot be stacked, or there is nothing to gain."""
        if len(statements) < 2 or not all(each.types for each in statements):
            return None
        queries = [(rendered(each.sql, "postgresql"), each.types) for each in statements]
        return Stack(Statement(stacked(queries), tuple(chain.from_iterable(each.params for each in statements))), queries)

    def rows(self, rows: Rows) -> list[Rows]:
        return unstacked(self._queries, rows)


@dataclass(frozen=True, slots=True)
class Following:
    """Statements that are sent together with a COMMIT and run after it; there may be none. ``received`` gets the rows of each.

    ``ended``: if given, ``received`` gets the rows before their transaction ends, and this is called when it has ended.
    """

    statements: Sequence[Statement]
    received: Callable[[list[Rows]], object]
    ended: Callable[[], object] | None = None


def execute_and_commit(statements: Sequence[Statement], following: Sequence[Following] = ()) -> Rows:
    """Postgres only: run the last statements of the open transaction and COMMIT in one round trip.

    Returns the rows of the last statement. If one fails, nothing is committed. Inside an outer transaction, COMMIT is left
    to that one. What follows is not called if the connection is lost after COMMIT.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors:
        pipeline = _implicit_transaction() or Pipeline(connection.connection)
        for statement in statements:
            pipeline.add(rendered(statement.sql, "postgresql"), statement.params)
        if len(connection.atomic_blocks) == 1:
            # Django's own COMMIT then does nothing.
            pipeline.add("commit")
        pipeline.sync()
        _add_following(pipeline, following)
        answer = pipeline.rows()[len(statements) - 1]
    _receive(pipeline, following)
    return answer


def execute_following(following: Sequence[Following]) -> None:
    """Postgres only: what follows a COMMIT that is done already. It is not called if the connection is lost."""
    try:
        pipeline = Pipeline(connection.connection)
    except psycopg.Error:
        connection.close()
        return
    _add_following(pipeline, following)
    _receive(pipeline, following)


def _add_following(pipeline: Pipeline, following: Sequence[Following]) -> None:
    for group in following:
        for statement in group.statements:
            pipeline.add(rendered(statement.sql, "postgresql"), statement.params)
        if group.ended is not None:
            pipeline.flush()
        if group.statements:
            pipeline.sync()


def _receive(pipeline: Pipeline, following: Sequence[Following]) -> None:
    try:
        for group in following:
            group.received(pipeline.rows() if group.statements else [])
            if group.ended is not None:
                pipeline.rows()
                group.ended()
    except psycopg.Error:
        # At the end of its block, Django expects an open connection or one that was closed like this.
        connection.close()


def is_answered() -> bool:
    """On a loop: whether the server has answered all statements that were sent; False if the connection is lost."""
    wrapper: Any = connection
    if (pipeline := _implicit_transaction()) is not None:
        return pipeline.is_answered
    return wrapper.connection is not None and bool(wrapper.is_answered())


def rows_in_batch(statements: Sequence[Statement]) -> list[Rows]:
    """``rows_of_each`` for the reads of a batch: locked rows are left out."""
    return _on_postgres(statements, BATCH)


def _on_postgres(statements: Sequence[Statement], vendor: str = "postgresql") -> list[Rows]:
    connection.ensure_connection()
    with connection.wrap_database_errors:
        implicit = _implicit_transaction()
        pipeline = implicit or Pipeline(connection.connection)
        for statement in statements:
            pipeline.add(rendered(statement.sql, vendor), statement.params)
        if implicit is None:
            pipeline.sync()
        else:
            pipeline.flush()
        return pipeline.rows()


def adapted(params: Sequence[Any]) -> tuple[Any, ...]:
    """Parameters converted for the database: SQLite has neither times with a zone nor lists."""
    if connection.vendor != "sqlite":
        return tuple(params)
    return tuple(_for_sqlite(each) for each in params)


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return json.dumps(value) if isinstance(value, list) else value
