"""Indexes of large tables are built without stopping writers, and again after an interrupted build."""

from __future__ import annotations

import pytest
from django.db import NotSupportedError, connection
from django.db.migrations.loader import MigrationLoader

from sessions_app.migrations._concurrent import AddIndexConcurrently
from sessions_app.models import Session

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "session_newest"


@pytest.fixture(autouse=True)
def _builds(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no concurrent builds")


def build() -> None:
    (index,) = (each for each in Session._meta.indexes if each.name == NAME)
    state = MigrationLoader(connection).project_state()
    with connection.schema_editor(atomic=False) as editor:
        AddIndexConcurrently("session", index).database_forwards("sessions_app", editor, state, state)


def identity() -> tuple[int, bool]:
    with connection.cursor() as cursor:
        cursor.execute("select indexrelid, indisvalid from pg_index where indexrelid = to_regclass(%s)", [NAME])
        found: tuple[int, bool] = cursor.fetchone()
        return found


def test_an_index_that_exists_is_kept_and_one_that_was_left_unfinished_is_built_again() -> None:
    before = identity()
    build()
    assert identity() == before
    with connection.cursor() as cursor:
        cursor.execute("update pg_index set indisvalid = false where indexrelid = %s", [before[0]])
    build()
    after, is_valid = identity()
    assert is_valid
    assert after != before[0]


def test_the_operation_refuses_to_stop_writers_in_a_transaction() -> None:
    state = MigrationLoader(connection).project_state()
    (index,) = (each for each in Session._meta.indexes if each.name == NAME)
    with connection.schema_editor(atomic=True) as editor, pytest.raises(NotSupportedError, match="atomic = False"):
        AddIndexConcurrently("session", index).database_forwards("sessions_app", editor, state, state)


def test_every_index_that_a_migration_builds_concurrently_is_in_a_migration_without_transaction() -> None:
    migrations = MigrationLoader(connection).disk_migrations
    concurrent = [
        migration
        for migration in migrations.values()
        if any(isinstance(operation, AddIndexConcurrently) for operation in migration.operations)
    ]
    assert concurrent
    assert [migration.name for migration in concurrent if migration.atomic] == []
