"""``migrate`` beside a server that is busy: it gives up locks that others have, and lets the previous release in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate as django_migrate
from django.db import connection, transaction

from agenthost.management.commands import migrate
from sessions_app.core.records import database_checks
from sessions_app.models import InstallationMark

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = "sessions_app_tenantdeletion"
LOGIN = ("host", "port", "user", "password", "dbname")


class Refusals(StringIO):
    """What the command prints on stderr, which is only about refused locks."""

    def __init__(self, on_refusal: Callable[[], None]) -> None:
        super().__init__()
        self._on_refusal = on_refusal

    def write(self, text: str) -> int:
        self._on_refusal()
        return super().write(text)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, on_postgres: bool) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A transaction that has read a table, which a migration now wants to change."""

    if not on_postgres:
        pytest.skip("SQLite has no locks of tables")

    def change(*_arguments: Any, **_options: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"lock table {TABLE} in access exclusive mode")

    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(migrate, "LOCK_PAUSE", 0.0)
    monkeypatch.setattr(django_migrate.Command, "handle", change)
    login = {name: value for name, value in connection.get_connection_params().items() if name in LOGIN}
    with psycopg.connect(**login) as opened:
        opened.execute(f"select count(*) from {TABLE}".encode())
        yield opened
        opened.rollback()


def lock_timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("show lock_timeout")
        return str(cursor.fetchone()[0])


def test_a_migration_that_meets_a_lock_is_tried_again(reader: psycopg.Connection[tuple[object, ...]]) -> None:
    before = lock_timeout()
    said = Refusals(reader.rollback)
    call_command("migrate", stderr=said, verbosity=0)
    assert said.getvalue().strip() == "a table is locked by another transaction; trying again (1 of 150)"
    assert lock_timeout() == before


@pytest.mark.usefixtures("reader")
def test_a_lock_that_stays_ends_the_command_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_TRIES", 3)
    with pytest.raises(CommandError, match="locked a table for more than 0 s"):
        call_command("migrate", stderr=StringIO(), verbosity=0)


def test_the_previous_release_may_use_a_database_that_this_one_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a new database: the table of marks is made by the migrations themselves."""
    released = database_checks.released_migrations()
    newest = max(f"{app}.{name}" for app, name in database_checks.shipped() if app == "sessions_app")
    if newest in released:
        pytest.skip("the previous release has all migrations")
    marks = InstallationMark.objects.filter(name="optional_migrations")
    monkeypatch.setattr(django_migrate.Command, "handle", lambda *_arguments, **_options: marks.delete())
    call_command("migrate", stderr=StringIO(), verbosity=0)
    assert newest in marks.get().value
