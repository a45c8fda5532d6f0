"""A database that cannot be used is diagnosed in one line, with the fix."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from agenthost import database_diagnosis
from ops.services import free_port

pytestmark = pytest.mark.django_db(transaction=True)


def line(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> str:
    """The diagnosis when the settings of the test database are changed like this."""
    for name, value in changed.items():
        monkeypatch.setitem(connection.settings_dict, name, value)
    found = database_diagnosis.diagnose()
    assert found is not None
    assert "\n" not in found
    return found


@pytest.fixture
def _postgres(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("about Postgres")


@pytest.mark.usefixtures("_postgres")
def test_a_database_that_answers_is_usable() -> None:
    assert database_diagnosis.diagnose() is None


@pytest.mark.usefixtures("_postgres")
def test_an_unreachable_server_is_named_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    said = line(monkeypatch, HOST="127.0.0.1", PORT=str(port), USER="someone", PASSWORD="hush-hush")
    assert said.startswith(f"DATABASE_URL: the database at 127.0.0.1:{port} cannot be used: ")
    assert "Connection refused" in said
    assert "hush-hush" not in said
    assert said.endswith("Start Postgres, or correct the host and port in DATABASE_URL.")


@pytest.mark.usefixtures("_postgres")
def test_a_missing_database_is_named_with_the_statement_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = line(monkeypatch, NAME="no_such_database")
    assert 'CREATE DATABASE "no_such_database"' in said


@pytest.mark.usefixtures("_postgres")
def test_a_refused_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Check the user and password in DATABASE_URL" in line(monkeypatch, USER="nobody_here", PASSWORD="hush-hush")


@pytest.mark.usefixtures("_postgres")
def test_an_error_of_a_working_database_has_no_diagnosis() -> None:
    assert database_diagnosis.diagnose_error(OperationalError("deadlock detected")) is None


def test_a_server_that_is_too_old_is_reported_with_djangos_message() -> None:
    from django.db import NotSupportedError

    assert database_diagnosis.diagnose_error(NotSupportedError("PostgreSQL 14 or later is required (found 12.3).")) is not None


def test_a_missing_sqlite_file_is_no_fault(tmp_path: Path) -> None:
    assert database_diagnosis.diagnose_sqlite(tmp_path / "new.sqlite3") is None


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite3").write_text("these are notes, and more than sixteen bytes of them")
    said = database_diagnosis.diagnose_sqlite(tmp_path / "a.sqlite3")
    assert said is not None
    assert "a.sqlite3 cannot be read as a SQLite database" in said
    assert "Restore a backup" in said


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.sqlite3"
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table bookmarks (url text)")
    before = path.read_bytes()
    said = database_diagnosis.diagnose_sqlite(path)
    assert said is not None
    assert "another program's database (it has the table bookmarks)" in said
    assert path.read_bytes() == before


def test_a_database_of_another_django_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "polls.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("create table django_migrations (app text, name text)")
        made.execute("insert into django_migrations values ('auth', '0001_initial')")
        # So far it may be a first start of ours that was cut off.
        assert database_diagnosis.diagnose_sqlite(path) is None
        made.execute("insert into django_migrations values ('polls', '0001_initial')")
    before = path.read_bytes()
    said = database_diagnosis.diagnose_sqlite(path)
    assert said is not None
    assert "another program's database (it has migrations of polls)" in said
    assert path.read_bytes() == before


def test_a_locked_file_is_not_reported_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sqlite3"
    monkeypatch.setattr(database_diagnosis, "SQLITE_SECONDS", 0.1)
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table django_migrations (app text, name text)")
        made.execute("begin exclusive")
        said = database_diagnosis.diagnose_sqlite(path)
    assert said is not None
    assert "cannot be opened: database is locked. Stop the program that has it open" in said
    assert "backup" not in said
