"""Migrates one Postgres database for the tests; each process that runs tests copies it, which takes a twentieth of the time.

It has what migrations write, and not what the command `migrate` writes after them with an installation's own keys.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "test_agenthost_migrated"
# Tells the tests the name of the database.
VARIABLE = "AGENTHOST_TEST_MIGRATED"


def begin(server_url: str, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start to make the database; `made` waits for the end."""
    import psycopg

    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{NAME}"')
    url = f"{server_url.rpartition('/')[0]}/{NAME}"
    environment = {**variables, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    return subprocess.Popen([sys.executable, "-m", "ops.migrated_database"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)


def made(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """The variable for the tests; empty if migrations fail, which the tests themselves then show."""
    return {VARIABLE: NAME} if process.wait() == 0 else {}


def name() -> str | None:
    return os.environ.get(VARIABLE)


def main() -> None:
    import django

    django.setup()
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


if __name__ == "__main__":
    main()
