"""The database: reach, version, rights, settings that matter, size, and whether it belongs to this process."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from agenthost import database_diagnosis
from agenthost.doctor.findings import Finding, fail, ok, warning
from sessions_app.core.records import installation
from sessions_app.models import AuditRecord, Turn

NAME = "database"
OLDEST_POSTGRES = 14
OLDEST_SQLITE = (3, 37)
RESERVED_BY_A_PROCESS = 2
"""Connections of a process beside its pool: the journal's (docs/operating.md)."""
_READS_AND_WRITES = """
select bool_and(has_table_privilege(%s, privilege)) from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
"""
_QUICK_CHECK_SECONDS = 20.0


def look() -> Iterator[Finding]:
    fault = database_diagnosis.why_unusable()
    if fault is not None:
        yield fail(NAME, fault, "")
        return
    if connection.vendor == "postgresql":
        with closing(database_diagnosis.connect()) as made:
            yield from of_postgres(made)
    else:
        yield from of_sqlite(database_diagnosis.sqlite_path())


def of_postgres(made: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    began = time.perf_counter()
    shown = _row(made, "select current_database(), current_user, pg_size_pretty(pg_database_size(current_database()))")
    took = (time.perf_counter() - began) * 1000
    database, role, size = shown
    version = made.info.server_version
    yield ok(
        NAME,
        f"Postgres {version // 10000}.{version % 10000} at {database_diagnosis.address()}, database {database}, {size}, role {role},"
        f" answers in {took:.1f} ms",
    )
    if version // 10000 < OLDEST_POSTGRES:
        yield fail(NAME, f"Postgres {version // 10000} is too old.", f"Upgrade it to {OLDEST_POSTGRES} or newer.")
    if _row(made, "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool")[0]:
        yield fail(NAME, "The server is read-only (a standby).", "Point DATABASE_URL at the primary.")
    yield from rights(made, role)
    yield from parameters(made)
    yield from connections(made)


def rights(made: psycopg.Connection[tuple[Any, ...]], role: str) -> Iterator[Finding]:
    table = Turn._meta.db_table
    if _row(made, "select to_regclass(%s) is null", table)[0]:
        if not _row(made, "select has_schema_privilege(current_schema(), 'CREATE')")[0]:
            fix = f'As the owner of the database: GRANT CREATE ON SCHEMA public TO "{role}"'
            yield fail(NAME, f"The role {role} may not create tables.", fix)
    elif not _row(made, _READS_AND_WRITES, table)[0]:
        fix = "Run ops/entrypoint migrate as the role that owns the tables, or grant the rights (docs/operating.md)."
        yield fail(NAME, f"The role {role} may not read and write {table}.", fix)
    elif _row(made, "select has_table_privilege(%s, 'DELETE')", AuditRecord._meta.db_table)[0]:
        fix = "Run the server under a second role (docs/operating.md, Two roles of Postgres)."
        yield warning(NAME, f"The role {role} may rewrite the audit.", fix)
    if _row(made, "select rolsuper from pg_roles where rolname = current_user")[0]:
        yield warning(NAME, f"The role {role} is a superuser.", "Give the server a role that owns its own database and no more.")


def parameters(made: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    names = ["fsync", "full_page_writes", "server_encoding"]
    found = dict(made.execute("select name, setting from pg_settings where name = any(%s)", [names]).fetchall())
    # Without what this process asks for itself.
    (found["synchronous_commit"],) = _row(made, "select reset_val from pg_settings where name = 'synchronous_commit'")
    for name in ("fsync", "full_page_writes"):
        if found.get(name) == "off":
            fix = f"Set {name} = on in postgresql.conf."
            yield fail(NAME, f"{name} is off: a crash of the machine can destroy the database.", fix)
    if found["synchronous_commit"] == "off":
        fix = "Set synchronous_commit = on."
        yield warning(NAME, "synchronous_commit is off: a crash of Postgres may lose what clients were told is stored.", fix)
    if found.get("server_encoding") != "UTF8":
        fix = "Make a database with ENCODING 'UTF8' and restore into it."
        yield fail(NAME, f"The database's encoding is {found.get('server_encoding')}; texts need UTF8.", fix)


def connections(made: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    allowed, used = _row(
        made,
        "select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,"
        " (select sum(numbackends)::int from pg_stat_database)",
    )
    each = settings.AGENTHOST_DATABASE_POOL_MAX + RESERVED_BY_A_PROCESS
    detail = f"{used} of {allowed} connections in use; room for {allowed // each} processes with up to {each} connections each"
    if allowed // each < 2:
        fix = "Raise max_connections, or lower AGENTHOST_DATABASE_POOL_MAX."
        yield fail(NAME, f"{detail}, and a web and a worker are two.", fix)
    elif used > 0.9 * allowed:
        yield warning(NAME, f"{detail}.", "Raise max_connections, or run fewer processes.")
    else:
        yield ok(NAME, detail)


def of_sqlite(path: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    size = path.stat().st_size if path.exists() else 0
    if not size:
        yield warning(NAME, f"{path} is empty.", "Start the server, or run: ops/entrypoint migrate")
        return
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield fail(NAME, f"SQLite {version} is too old.", "Use a Python with SQLite 3.37 or newer.")
    until = time.monotonic() + _QUICK_CHECK_SECONDS
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=20)) as made:
        made.set_progress_handler(lambda: time.monotonic() > until, 100_000)
        try:
            found = [text for (text,) in made.execute("pragma quick_check(3)")]
        except sqlite3.OperationalError:
            if time.monotonic() <= until:
                raise
            yield warning(NAME, f"{path}: not read to its end within {_QUICK_CHECK_SECONDS:g} s.", "Check a copy of it.")
            return
        except sqlite3.DatabaseError as error:
            found = [str(error)]
    if found == ["ok"]:
        yield ok(NAME, f"SQLite {version}, {path}, {size / 1e6:.1f} MB, without damage")
    else:
        fix = "Stop the server and restore a backup (docs/operating.md)."
        yield fail(NAME, f"{path} is damaged: {'; '.join(found)[:300]}", fix)


def belonging() -> Iterator[Finding]:
    """Schema and keys, as every start compares them."""
    schema = installation.schema_fault()
    if schema is not None:
        yield fail("schema", schema.what, schema.fix)
        return
    yield ok("schema", "this release's, all migrations are applied")
    found = installation.key_faults()
    for fault in found:
        yield fail("keys", fault.what, fault.fix)
    if not found:
        yield ok("keys", "AGENTHOST_KEY_RING and AGENTHOST_SECRET_KEY are those that the database was used with")


def _row(made: psycopg.Connection[tuple[Any, ...]], statement: str, *parameters: object) -> tuple[Any, ...]:
    found = made.execute(statement.encode(), parameters or None).fetchone()
    assert found is not None
    return found
