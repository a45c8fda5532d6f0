"""Writes agenthost/sqlite/schema.sql: the tables that the migrations make in an SQLite database, for new installations.

usage: python -m ops.schema [--check]      --check: only compares, and fails if the file is not what the migrations make
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from pathlib import Path


def made_by_migrations(directory: Path) -> str:
    """Run all migrations one after the other in a new database, and describe what is in it then."""
    from django.conf import settings
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = str(directory / "new.sqlite3")
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    connection.close()
    with sqlite3.connect(directory / "new.sqlite3") as database:
        return described(database)


def described(database: sqlite3.Connection) -> str:
    """The migrations and statements of a database, as the file has them."""
    from agenthost.sqlite.new_database import RECORD

    objects = database.execute("select type, name, sql from sqlite_master where sql is not null order by rowid").fetchall()
    virtual = [name for _, name, sql in objects if sql.lower().startswith("create virtual table")]
    # A virtual table makes the tables behind it, and SQLite its own.
    made_by_sqlite = ("sqlite_", *(f"{table}_" for table in virtual))
    ours = [(kind, name, sql) for kind, name, sql in objects if not name.startswith(made_by_sqlite)]
    if filled := [name for kind, name, _ in ours if kind == "table" and name not in virtual and has_rows(database, name)]:
        raise SystemExit(f"migrations write rows to {', '.join(filled)}, and ops/schema records tables only: extend it")
    lines = [
        "-- Written by ops/schema from the migrations: not to be edited.",
        *(f"{RECORD}{app}.{name}" for app, name in database.execute("select app, name from django_migrations order by id")),
        *(f"{sql};" for wanted in ("table", "index", "trigger", "view") for kind, _, sql in ours if kind == wanted),
    ]
    return "\n".join(lines) + "\n"


def has_rows(database: sqlite3.Connection, table: str) -> bool:
    found = database.execute(f'select exists (select 1 from "{table}")').fetchone()
    return table != "django_migrations" and bool(found[0])


def main() -> int:
    only_checks = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not only_checks:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="agenthost-schema-") as folder:
        os.environ.pop("DATABASE_URL", None)
        os.environ.update(AGENTHOST_VAR_DIR=folder, DJANGO_SETTINGS_MODULE="agenthost.settings")
        import django

        django.setup()
        from agenthost.sqlite.new_database import FILE

        wanted = made_by_migrations(Path(folder))
    if FILE.exists() and FILE.read_text() == wanted:
        return 0
    if only_checks:
        print(f"{FILE.name} is not what the migrations make. Run ops/schema and commit it.")
        return 1
    FILE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
