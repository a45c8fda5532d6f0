"""Writes agenthost/sqlite/schema.sql: the tables that the migrations make in an SQLite database, for new installations.

usage: python -m ops.schema [--check]      --check: only compares, and fails if the file is not what the migrations make
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from pathlib import Path

# What Django's command writes after the migrations, and SQLite by itself.
_NOT_OF_MIGRATIONS = ("django_content_type", "auth_permission", "sqlite_sequence")


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
    virtual = [name for kind, name, sql in objects if kind == "table" and sql.lower().startswith("create virtual table")]
    lines = [
        "-- Written by ops/schema from the migrations: not to be edited.",
        *(f"{RECORD}{app}.{name}" for app, name in database.execute("select app, name from django_migrations order by id")),
    ]
    for wanted in ("table", "index", "trigger", "view"):
        for kind, name, sql in objects:
            # A virtual table makes the tables behind it.
            behind = any(name.startswith(f"{table}_") for table in virtual)
            if kind == wanted and not behind and not name.startswith("sqlite_"):
                lines.append(f"{sql};")
    filled = [
        name
        for kind, name, _ in objects
        if kind == "table"
        and name not in (*_NOT_OF_MIGRATIONS, "django_migrations", *virtual)
        and not any(name.startswith(f"{table}_") for table in virtual)
        and database.execute(f'select exists (select 1 from "{name}")').fetchone()[0]
    ]
    if filled:
        raise SystemExit(f"migrations write rows to {', '.join(filled)}: {__name__} does not record rows yet")
    return "\n".join(lines) + "\n"


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
