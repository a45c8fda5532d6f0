"""``migrate`` is killed in the middle of a long change of rows, and runs again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.fakes.tools import ToolBox
from tests.faults.cluster import wait_for
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif("production" not in servers.shapes(), reason="needs Postgres")]

SESSIONS = 4000
PLAIN = {
    "ARRAY": "'{}'",
    "bigint": "1",
    "boolean": "false",
    "date": "current_date",
    "character varying": "''",
    "integer": "1",
    "jsonb": "'[]'",
    "smallint": "1",
    "text": "''",
    "timestamp with time zone": "now()",
    "uuid": "gen_random_uuid()",
}


def fill(connection: psycopg.Connection[tuple[object, ...]], table: str, count: int, **values: str) -> None:
    """Rows with these values (SQL, with ``n`` as the number of the row), and plain ones where a column needs one."""
    columns = connection.execute(
        "select column_name, data_type from information_schema.columns where table_name = %s and is_nullable = 'NO'"
        " and column_default is null and is_identity = 'NO'",
        [table],
    ).fetchall()
    given = {**{str(name): PLAIN[str(kind)] for name, kind in columns}, **values}
    names = ", ".join(f'"{name}"' for name in given)
    connection.execute(
        f"insert into {table} ({names}) select {', '.join(given.values())} from generate_series(1, {count}) n".encode()
    )


class Database:
    """A database and the command that migrates it."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        agents_file.write(directory / "agents.toml", "http://127.0.0.1:1")
        self.environment = {
            **servers.base_environment(directory, ToolBox(directory / "tools")),
            **servers.installation_secrets(),
            "DATABASE_URL": url,
        }

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url, autocommit=autocommit, application_name="the test")

    def migrate(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "manage.py", "migrate", "sessions_app", name]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def counted(self) -> dict[int, int]:
        with self.connect() as connection:
            rows = connection.execute("select key_id, amount from sessions_app_usagetotal where measure = 'session'").fetchall()
        return {int(str(session)): int(str(amount)) for session, amount in rows}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with servers.own_database(os.environ["DATABASE_URL"]) as url:
        yield Database(url, tmp_path)


def test_a_killed_migrate_continues_and_counts_nothing_twice(database: Database) -> None:
    before = database.migrate("0017")
    _, said = before.communicate(timeout=240)
    assert before.returncode == 0, said
    with database.connect() as connection:
        # Without the rows that foreign keys refer to.
        connection.execute("set session_replication_role = replica")
        fill(connection, "sessions_app_session", SESSIONS, id="n", public_id="'sess_' || n")
        fill(connection, "sessions_app_message", SESSIONS, session_id="n", content="repeat('x', n::int)", position="n")
    # Another transaction has the row of a session in the second batch, so the first one is done and the second one waits.
    with database.connect(autocommit=False) as other:
        fill(other, "sessions_app_usagetotal", 1, key_id="1500", measure="'session'", day="'1970-01-01'")
        killed = database.migrate("0018")
        with database.connect() as connection:
            waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            wait_for(lambda: connection.execute(waiting).fetchall(), "migrate waits for the row")
        killed.kill()
        killed.communicate()
        other.rollback()
    assert database.counted() == {session: session for session in range(1, 1001)}
    again = database.migrate("0018")
    _, said = again.communicate(timeout=240)
    assert again.returncode == 0, said
    assert "0018_bytes_of_sessions: sessions_app_session: continues after id 1,000 of 4,000" in said
    assert database.counted() == {session: session for session in range(1, SESSIONS + 1)}
