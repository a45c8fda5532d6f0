"""A new SQLite database gets its tables from a file, which is as good as running all migrations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import OperationalError

from agenthost.sqlite import new_database
from agenthost.sqlite.base import DatabaseWrapper

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[BaseDatabaseWrapper]:
    """A connection to an SQLite database without tables. The tests' own database may be Postgres."""
    described = {
        **settings.DATABASES["default"],
        "ENGINE": "agenthost.sqlite",
        "NAME": str(tmp_path / "new.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    connections["new"] = wrapper = DatabaseWrapper(described, "new")
    yield wrapper
    wrapper.close()
    del connections["new"]


def tables(connection: BaseDatabaseWrapper) -> list[str]:
    return connection.introspection.table_names()


def test_no_migration_is_left_to_run(empty: BaseDatabaseWrapper) -> None:
    number = new_database.make(empty)
    executor = MigrationExecutor(empty)
    assert number == len(MigrationRecorder(empty).applied_migrations()) == len(executor.loader.disk_migrations)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    assert {"sessions_app_session", "auth_user", "django_migrations"} <= set(tables(empty))


def test_a_database_with_tables_is_left_to_the_migrations(empty: BaseDatabaseWrapper) -> None:
    with empty.cursor() as cursor:
        cursor.execute("create table mine (id integer)")
    assert new_database.make(empty) == 0
    assert tables(empty) == ["mine"]


@pytest.mark.parametrize(
    "change", [("sessions_app.0001_initial", "sessions_app.0001_other"), ("-- migration axes.0001_initial\n", "")]
)
def test_a_file_of_other_migrations_is_not_used(
    empty: BaseDatabaseWrapper, change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library was upgraded, or a new migration is not in the file yet."""
    text = new_database.FILE.read_text()
    assert text.count(change[0]) == 1
    other = tmp_path / "schema.sql"
    other.write_text(text.replace(*change))
    monkeypatch.setattr(new_database, "FILE", other)
    assert new_database.make(empty) == 0
    assert tables(empty) == []


def test_all_or_nothing(empty: BaseDatabaseWrapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "schema.sql"
    broken.write_text(new_database.FILE.read_text() + "create table t (a no such thing (;\n")
    monkeypatch.setattr(new_database, "FILE", broken)
    with pytest.raises(OperationalError):
        new_database.make(empty)
    assert tables(empty) == []
