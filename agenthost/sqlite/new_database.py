"""Makes the tables of a new SQLite database from ``schema.sql``, instead of running all migrations since the first one.

Most of the time of a first start went into the migrations, and most of theirs into Django's models of each state in between.
`ops/schema` writes the file from the migrations, and `ops/check` compares the two. If the file does not record exactly the
migrations that are installed, they run one after the other as in any other database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

FILE = Path(__file__).with_name("schema.sql")
RECORD = "-- migration "

Migrations = list[tuple[str, str]]


def make(connection: BaseDatabaseWrapper) -> int:
    """Make the tables if there are none, and record the migrations as applied; returns how many (0: nothing was done)."""
    if connection.vendor != "sqlite" or not FILE.exists():
        return 0
    migrations, statements = read(FILE.read_text())
    if set(migrations) != set(installed()):
        return 0
    with transaction.atomic(using=connection.alias):
        if connection.introspection.table_names(include_views=True):
            return 0
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        recorder = MigrationRecorder(connection)
        for app, name in migrations:
            recorder.record_applied(app, name)
    return len(migrations)


def installed() -> Migrations:
    """The migrations of all installed apps."""
    return list(MigrationLoader(None).disk_migrations)


def read(text: str) -> tuple[Migrations, list[str]]:
    """The migrations that the file records, in the order in which they were applied, and its statements."""
    migrations: Migrations = []
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(RECORD):
            app, _, name = line.removeprefix(RECORD).partition(".")
            migrations.append((app, name))
        else:
            lines.append(line)
    return migrations, list(_statements(lines))


def _statements(lines: list[str]) -> Iterator[str]:
    statement = ""
    for line in lines:
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), f"{FILE.name} ends in the middle of a statement"
