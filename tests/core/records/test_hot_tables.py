"""The indexes and foreign keys of the tables that each turn writes (decision 0043)."""

from __future__ import annotations

import pytest
from django.db import connection

from sessions_app.models import Message, Session, ToolCall, Turn

TABLES = [model._meta.db_table for model in (Session, Turn, Message, ToolCall)]


@pytest.mark.django_db
@pytest.mark.parametrize("table", TABLES)
def test_no_plain_index_is_the_beginning_of_another(table: str) -> None:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
    indexes = {
        name: entry["columns"]
        for name, entry in found.items()
        # A partial index and one for patterns answer other questions than one of the same columns.
        if entry["index"] and entry["columns"] and not name.endswith("_like") and not _is_partial(table, name)
    }
    beginnings = [
        (name, other)
        for name, columns in indexes.items()
        for other, longer in indexes.items()
        if name != other and not found[name]["unique"] and longer[: len(columns)] == columns
    ]
    assert beginnings == []


def _is_partial(table: str, name: str) -> bool:
    source = (
        "select indexdef from pg_indexes where tablename = %s and indexname = %s"
        if connection.vendor == "postgresql"
        else "select coalesce(sql, '') from sqlite_master where tbl_name = %s and name = %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(source, [table, name])
        row = cursor.fetchone()
    return row is not None and " WHERE " in row[0]


@pytest.mark.django_db
def test_foreign_keys_are_checked_by_the_statement_that_writes_them(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer at a time")
    with connection.cursor() as cursor:
        cursor.execute(
            "select conname from pg_constraint where contype = 'f' and condeferred and conrelid::regclass::text = any(%s)",
            [TABLES],
        )
        assert cursor.fetchall() == []
