"""Statements that are written out, for what every turn does: on Postgres each is parsed and planned once a connection.

The ORM takes longer to write such a statement than the database to run it, and sends its values inside the
text, so that it is planned each time anew. Values go as ``%s``; the connection is Django's, its transaction too.
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

# A prepared statement is one for each combination of its parameters' types; so all numbers are of one type.
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
    """The statement in the words of one database."""
    for word, text in _PLACEHOLDERS[vendor].items():
        sql = sql.replace("{" + word + "}", text)
    return sql


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of the answer. ``{now}``, ``{moment}`` (seconds from now) and locks are put in the database's words.

    ``{among}`` compares with a list of numbers, ``{among_texts}`` with one of texts;
    ``{octets}(cast(… as {octets_type}))`` is a text's bytes.
    """
    if connection.vendor == "postgresql":
        return _run(sql, params).fetchall()
    with connection.cursor() as cursor:
        cursor.execute(rendered(sql, connection.vendor), adapted(params))
        return list(cursor.fetchall())


def row(sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """The first row of the answer."""
    found = rows(sql, params)
    return found[0] if found else None


def rows_of_each(statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """The rows of each, one statement after the other; on Postgres they go together in one round trip."""
    if connection.vendor != "postgresql":
        return [rows(statement.sql, statement.params) for statement in statements]
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        cursors = [_run(statement.sql, statement.params) for statement in statements]
    return [cursor.fetchall() for cursor in cursors]


def execute(statements: Sequence[Statement]) -> None:
    """One after the other, nothing answered; on Postgres they go together in one round trip."""
    if connection.vendor == "postgresql":
        if len(statements) == 1:
            # A pipeline costs as much again as the statement in it.
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
    """On Postgres: the statements that end the open transaction and its COMMIT, in one round trip.

    Answers the last one's rows. Whatever fails, nothing is committed. Inside another transaction COMMIT is that one's.
    """
    outermost = len(connection.atomic_blocks) == 1
    with connection.wrap_database_errors, connection.connection.pipeline():
        for statement in statements:
            cursor = _run(statement.sql, statement.params)
        if outermost:
            # Django's own COMMIT finds nothing left to do.
            connection.connection.execute("commit")
    return cursor.fetchall()


def _run(sql: str, params: Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    # Not Django's cursor: that one puts the values into the text.
    connection.ensure_connection()
    with connection.wrap_database_errors:
        cursor: psycopg.Cursor[tuple[Any, ...]] = psycopg.Cursor(connection.connection)
        return cursor.execute(rendered(sql, "postgresql"), params, prepare=True)


def adapted(params: Sequence[Any]) -> tuple[Any, ...]:
    """Parameters as the database takes them: SQLite knows no time with a zone and no list."""
    if connection.vendor != "sqlite":
        return tuple(params)
    return tuple(_for_sqlite(each) for each in params)


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return json.dumps(value) if isinstance(value, list) else value
