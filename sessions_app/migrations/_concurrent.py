"""Adds indexes and checked columns to large tables without locks that block the server. Not a migration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import NotSupportedError, transaction
from django.db.migrations.operations import AddField, AddIndex

_IS_VALID = "select i.indisvalid from pg_index i where i.indexrelid = to_regclass(%s)"


class AddIndexConcurrently(AddIndex):
    """``AddIndex`` that lets others write meanwhile, on Postgres; its migration has ``atomic = False``.

    It can be repeated: an index that exists is kept, and one that a build left unfinished is built again.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        model = to_state.apps.get_model(app_label, self.model_name)
        if connection.vendor != "postgresql":
            with connection.cursor() as cursor:
                exists = self.index.name in connection.introspection.get_constraints(cursor, model._meta.db_table)
            if not exists:
                super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        build(connection, self.index.name, str(self.index.create_sql(model, schema_editor, concurrently=True)))


def build(connection: Any, name: str, statement: str) -> None:
    """Execute this CREATE INDEX CONCURRENTLY on Postgres, unless the index exists; an unfinished one is built again."""
    if connection.in_atomic_block:
        raise NotSupportedError(f"the index {name} is built concurrently: set atomic = False on its migration")
    quoted = connection.ops.quote_name(name)
    with _no_lock_timeout(connection), connection.cursor() as cursor:
        cursor.execute(_IS_VALID, [quoted])
        row = cursor.fetchone()
        if row and row[0]:
            return
        if row:
            cursor.execute(f"drop index concurrently if exists {quoted}")
        cursor.execute(statement)


_IS_CHECKED = "select convalidated from pg_constraint where conrelid = to_regclass(%s) and conname = %s"


class AddFieldConcurrently(AddField):
    """``AddField`` that locks its table for a moment only; its migration has ``atomic = False``.

    A column with a CHECK (as of PositiveIntegerField) would be checked in all rows while nobody can read or write: here the
    rows that exist are checked afterwards, while others write. Each field is a transaction of its own, so that no two tables
    are locked together. It can be repeated. Not for foreign keys, unique columns and columns with an index.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if connection.in_atomic_block and connection.vendor == "postgresql":
            raise NotSupportedError(f"the field {self.name} is added concurrently: set atomic = False on its migration")
        model = to_state.apps.get_model(app_label, self.model_name)
        field = model._meta.get_field(self.name)
        if field.remote_field or field.unique or field.db_index:
            raise NotSupportedError(f"the field {self.name} is added concurrently: it must be a plain column")
        table = model._meta.db_table
        with connection.cursor() as cursor:
            exists = field.column in {column.name for column in connection.introspection.get_table_description(cursor, table)}
        check = field.db_parameters(connection)["check"] if connection.vendor == "postgresql" else None
        name = f"{table}_{field.column}_check"
        if not exists:
            with transaction.atomic(using=connection.alias):
                if check:
                    # The column is added without its CHECK, which follows under the name that Postgres would give it.
                    field.db_check = lambda _connection: None
                super().database_forwards(app_label, schema_editor, from_state, to_state)
                if check:
                    schema_editor.execute(f'ALTER TABLE "{table}" ADD CONSTRAINT "{name}" CHECK ({check}) NOT VALID')
        if not check:
            return
        with connection.cursor() as cursor:
            cursor.execute(_IS_CHECKED, [f'"{table}"', name])
            if cursor.fetchone() == (False,):
                cursor.execute(f'ALTER TABLE "{table}" VALIDATE CONSTRAINT "{name}"')


@contextmanager
def _no_lock_timeout(connection: Any) -> Iterator[None]:
    """A concurrent build waits for open transactions, and nobody waits for it: a timeout would only leave it unfinished."""
    with connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        (before,) = cursor.fetchone()
        cursor.execute("set lock_timeout = 0")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("select set_config('lock_timeout', %s, false)", [before])
