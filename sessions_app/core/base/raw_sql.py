"""Hand-written SQL for the statements of every turn; on Postgres they are prepared once per connection.

The ORM takes longer to build such a statement than the database to run it, and sends the values inside the text, so that
it is planned each time. Parameters are ``%s``; statements run on Django's connection and in its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import psycopg
from django.db import connection
from psycopg.types.numeric import Int8Dumper

# Postgres prepares a statement once per combination of parameter types; so all numbers get one type.
psycopg.adapters.register_dumper(int, Int8Dumper)


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with ``%s`` parameters, the same text for both databases."""

    sql: str
    params: Sequence[Any] = ()


_PLACEHOLDERS = {
    "postgresql": {
        "now": "statement_timestamp()",
        "moment": "statement_timestamp() + %s * interval '1 second'",
        "for_change": "for no key update",
        "for_change_of_turn": "for no key update of t skip locked",
        "octets": "octet_length",
        "octets_type": "text",
        "among": "= any(%s::bigint[])",
        "among_texts": "= any(%s::text[])",
    },
    "sqlite": {
        "now": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')",
        "moment": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %s || ' seconds')",
        "for_change": "",
        "for_change_of_turn": "",
        "octets": "length",
        "octets_type": "blob",
        "among": "in (select value from json_each(%s))",
        "among_texts": "in (select value from json_each(%s))",
    },
}


@lru_cache(maxsize=256)
def rendered(sql: str, vendor: str) -> str:
    """The statement with the placeholders (``{now}`` and others) of one database."""
    for name, text in _PLACEHOLDERS[vendor].items():
        sql = sql.replace("{" + name + "}", text)
    return sql


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows. The statement may contain placeholders that differ between the databases.

    ``{now}``, ``{moment}`` (now plus a number of seconds), ``{for_change}`` (lock the row), ``{among}`` (in a list of numbers),
    ``{among_texts}`` (in a list of texts), ``{octets}(cast(… as {octets_type}))`` (length in bytes).
    """
    if connection.vendor == "postgresql":
        return _run(sql, params).fetchall()
    with connection.cursor() as cursor:
        cursor.execute(rendered(sql, connection.vendor), adapted(params))
        return list(cursor.fetchall())


def row(sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """Run one statement and return its first row, if there is one."""
    found = rows(sql, params)
    return found[0] if found else None


def rows_of_each(statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """Run the statements in order and return the rows of each; on Postgres in one round trip."""
    if connection.vendor != "postgresql":
        return [rows(statement.sql, statement.params) for statement in statements]
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        cursors = [_run(statement.sql, statement.params) for statement in statements]
    return [cursor.fetchall() for cursor in cursors]


def execute(statements: Sequence[Statement]) -> None:
    """Run the statements in order and return nothing; on Postgres in one round trip."""
    if connection.vendor == "postgresql":
        if len(statements) == 1:
            # A pipeline doubles the cost of a single statement.
            _run(statements[0].sql, statements[0].params)
            return
        connection.ensure_connection()
        with connection.wrap_database_errors, connection.connection.pipeline():
            for statement in statements:
                _run(statement.sql, statement.params)
        return
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(rendered(statement.sql, connection.vendor), adapted(statement.params))


def execute_and_commit(statements: Sequence[Statement]) -> list[tuple[Any, ...]]:
    """Postgres only: run the last statements of the open transaction and COMMIT in one round trip.

    Returns the rows of the last statement. If one fails, nothing is committed. Inside an outer transaction, COMMIT is left
    to that one.
    """
    outermost = len(connection.atomic_blocks) == 1
    with connection.wrap_database_errors, connection.connection.pipeline():
        for statement in statements:
            cursor = _run(statement.sql, statement.params)
        if outermost:
            # Django's own COMMIT then does nothing.
            connection.connection.execute("commit")
    return cursor.fetchall()


def _run(sql: str, params: Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    # Django's cursor would put the values into the text, which prevents preparing.
    connection.ensure_connection()
    with connection.wrap_database_errors:
        cursor: psycopg.Cursor[tuple[Any, ...]] = psycopg.Cursor(connection.connection)
        return cursor.execute(rendered(sql, "postgresql"), params, prepare=True)


def adapted(params: Sequence[Any]) -> tuple[Any, ...]:
    """Parameters converted for the database: SQLite has neither times with a zone nor lists."""
    if connection.vendor != "sqlite":
        return tuple(params)
    return tuple(_for_sqlite(each) for each in params)


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return json.dumps(value) if isinstance(value, list) else value
