"""The indexes and foreign keys of the tables that each turn writes (decisions 0043 and 0049)."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions_app.core.sessions import deleting, entries
from sessions_app.models import Message, Session, ToolCall, Turn
from tests.core.conftest import World

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


# What is written again and again: by each turn, by each step of a run, by each renewal of a lease.
REPEATED = {
    "sessions_app_session": {"modified_at", "read", "title"},
    "sessions_app_turn": {"step", "parts", "input_tokens", "output_tokens", "cache_read_tokens", "lease_expires_at"},
    "sessions_app_workerpresence": {"seen_at", "lease_expires_at"},
}


@pytest.mark.django_db
@pytest.mark.parametrize("table", REPEATED)
def test_no_index_depends_on_a_column_that_is_written_repeatedly(table: str, on_postgres: bool) -> None:
    """Otherwise each such update writes new entries into all indexes of the row, and is no heap-only update."""
    if not on_postgres:
        pytest.skip("only Postgres has heap-only updates")
    with connection.cursor() as cursor:
        # Dependencies include the columns of an index's condition.
        cursor.execute(
            "select distinct a.attname from pg_index i"
            " join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = i.indexrelid"
            " join pg_attribute a on a.attrelid = i.indrelid and a.attnum = d.refobjsubid"
            " where i.indrelid = %s::regclass and d.refobjid = i.indrelid and d.refobjsubid > 0",
            [table],
        )
        indexed = {name for (name,) in cursor.fetchall()}
    assert indexed, "the query finds columns of indexes"
    assert indexed.isdisjoint(REPEATED[table])


@pytest.mark.parametrize("kind", ["listed", "idle"])
def test_sessions_are_found_by_their_last_hour_through_an_index(alice: World, on_postgres: bool, kind: str) -> None:
    if not on_postgres:
        pytest.skip("the plan is Postgres's")
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as queries:
        # So few rows would be read and sorted without any index.
        cursor.execute("set enable_seqscan = off; set enable_sort = off")
        try:
            if kind == "listed":
                alice.session()
                entries.listed(alice.caller)
            else:
                deleting.idle_sessions(alice.caller.tenant, timezone.now(), 10)
            (query,) = [each["sql"] for each in queries if "modified_hour" in each["sql"] and "ORDER BY" in each["sql"]][:1]
            cursor.execute("explain " + query)
            plan = "\n".join(line for (line,) in cursor.fetchall())
        finally:
            cursor.execute("reset enable_seqscan; reset enable_sort")
    assert "session_recent" in plan, plan


def test_a_sessions_hour_is_that_of_its_last_change(alice: World) -> None:
    session = alice.session()
    for at, hour in (("2026-11-19T11:59:59.999999+00:00", 498635), ("2026-11-19T12:00:00+00:00", 498636)):
        Session.objects.filter(pk=session.pk).update(modified_at=datetime.fromisoformat(at))
        assert Session.objects.values_list("modified_hour", flat=True).get(pk=session.pk) == hour
        assert int(datetime.fromisoformat(at).timestamp() // 3600) == hour


@pytest.mark.django_db
@pytest.mark.parametrize("model", [each for each in apps.get_app_config("sessions_app").get_models() if each._meta.managed])
def test_every_index_and_constraint_of_a_model_exists(model: type[Model]) -> None:
    """Django's AlterField of a column drops indexes of that column that it did not make for it, unique ones included."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    declared = {each.name for each in (*model._meta.indexes, *model._meta.constraints)}
    assert declared - found.keys() == set()
