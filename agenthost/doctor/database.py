"""Checks the database: connection, version, privileges, parameters, size, schema and keys."""

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
from agents_app import installation
from sessions_app.core.base import sealing, secret_keys
from sessions_app.core.records import database_checks
from sessions_app.management import sealed_values
from sessions_app.models import AuditRecord, Turn

NAME = "database"
OLDEST_POSTGRES = 14
OLDEST_SQLITE = (3, 37)
CONNECTIONS_OUTSIDE_POOL = 8
"""Per process, for the journal (docs/operating.md)."""
_READS_AND_WRITES = """
select bool_and(has_table_privilege(%s, privilege)) from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
"""
_QUICK_CHECK_SECONDS = 20.0


def check() -> Iterator[Finding]:
    fault = database_diagnosis.diagnose()
    if fault is not None:
        yield fail(NAME, fault, "")
        return
    if connection.vendor == "postgresql":
        with closing(database_diagnosis.connect()) as conn:
            yield from check_postgres(conn)
    else:
        yield from check_sqlite(database_diagnosis.sqlite_path())


def check_postgres(conn: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    started = time.perf_counter()
    database, role, size = _row(
        conn, "select current_database(), current_user, pg_size_pretty(pg_database_size(current_database()))"
    )
    milliseconds = (time.perf_counter() - started) * 1000
    version = conn.info.server_version
    yield ok(
        NAME,
        f"Postgres {version // 10000}.{version % 10000} at {database_diagnosis.address()}, database {database}, {size},"
        f" role {role}, answers in {milliseconds:.1f} ms",
    )
    if version // 10000 < OLDEST_POSTGRES:
        yield fail(NAME, f"Postgres {version // 10000} is too old.", f"Upgrade it to {OLDEST_POSTGRES} or newer.")
    if _row(conn, "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool")[0]:
        yield fail(NAME, "The server is read-only (a standby).", "Point DATABASE_URL at the primary.")
    yield from check_privileges(conn, role)
    yield from check_parameters(conn)
    yield from check_connections(conn)


def check_privileges(conn: psycopg.Connection[tuple[Any, ...]], role: str) -> Iterator[Finding]:
    table = Turn._meta.db_table
    if _row(conn, "select to_regclass(%s) is null", table)[0]:
        if not _row(conn, "select has_schema_privilege(current_schema(), 'CREATE')")[0]:
            fix = f'As the owner of the database: GRANT CREATE ON SCHEMA public TO "{role}"'
            yield fail(NAME, f"The role {role} cannot create tables.", fix)
    elif not _row(conn, _READS_AND_WRITES, table)[0]:
        fix = f"Run {installation.role('migrate')} as the role that owns the tables, or grant the privileges (docs/operating.md)."
        yield fail(NAME, f"The role {role} cannot read and write {table}.", fix)
    elif _row(conn, "select has_table_privilege(%s, 'DELETE')", AuditRecord._meta.db_table)[0]:
        fix = "Run the server with a second role (docs/operating.md, Two roles of Postgres)."
        yield warning(NAME, f"The role {role} can change audit records.", fix)
    if _row(conn, "select rolsuper from pg_roles where rolname = current_user")[0]:
        yield warning(NAME, f"The role {role} is a superuser.", "Use a role that owns only the server's database.")


def check_parameters(conn: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    names = ["fsync", "full_page_writes", "server_encoding"]
    found = dict(conn.execute("select name, setting from pg_settings where name = any(%s)", [names]).fetchall())
    # The server's default, because this process sets its own value.
    (found["synchronous_commit"],) = _row(conn, "select reset_val from pg_settings where name = 'synchronous_commit'")
    for name in ("fsync", "full_page_writes"):
        if found.get(name) == "off":
            fix = f"Set {name} = on in postgresql.conf."
            yield fail(NAME, f"{name} is off: a crash of the machine can destroy the database.", fix)
    if found["synchronous_commit"] == "off":
        fix = "Set synchronous_commit = on."
        yield warning(NAME, "synchronous_commit is off: a crash of Postgres can lose data that was acknowledged to clients.", fix)
    if found.get("server_encoding") != "UTF8":
        fix = "Create a database with ENCODING 'UTF8' and restore into it."
        yield fail(NAME, f"The database's encoding is {found.get('server_encoding')}; it must be UTF8.", fix)


def check_connections(conn: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Finding]:
    allowed, used = _row(
        conn,
        "select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,"
        " (select sum(numbackends)::int from pg_stat_database)",
    )
    each = settings.AGENTHOST_DATABASE_POOL_MAX + CONNECTIONS_OUTSIDE_POOL
    detail = f"{used} of {allowed} connections in use; enough for {allowed // each} processes with up to {each} connections each"
    if allowed // each < 2:
        fix = "Raise max_connections, or lower AGENTHOST_DATABASE_POOL_MAX."
        yield fail(NAME, f"{detail}; at least 2 (web and worker) are needed.", fix)
    elif used > 0.9 * allowed:
        yield warning(NAME, f"{detail}.", "Raise max_connections, or run fewer processes.")
    else:
        yield ok(NAME, detail)


def check_sqlite(path: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    size = path.stat().st_size if path.exists() else 0
    if not size:
        yield warning(NAME, f"{path} is empty.", f"Start the server, or run: {installation.role('migrate')}")
        return
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield fail(NAME, f"SQLite {version} is too old.", "Use a Python build with SQLite 3.37 or newer.")
    until = time.monotonic() + _QUICK_CHECK_SECONDS
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=20)) as conn:
        conn.set_progress_handler(lambda: time.monotonic() > until, 100_000)
        try:
            found = [text for (text,) in conn.execute("pragma quick_check(3)")]
        except sqlite3.OperationalError:
            if time.monotonic() <= until:
                raise
            yield warning(
                NAME,
                f"{path}: the integrity check took longer than {_QUICK_CHECK_SECONDS:g} s.",
                "Run it on a copy: PRAGMA quick_check.",
            )
            return
        except sqlite3.DatabaseError as error:
            found = [str(error)]
    if found == ["ok"]:
        yield ok(NAME, f"SQLite {version}, {path}, {size / 1e6:.1f} MB, intact")
    else:
        fix = "Stop the server and restore a backup (docs/operating.md)."
        yield fail(NAME, f"{path} is damaged: {'; '.join(found)[:300]}", fix)


def check_schema_and_keys() -> Iterator[Finding]:
    """The same checks of schema and keys as at every start."""
    schema = database_checks.schema_fault()
    if schema is not None:
        yield fail("schema", schema.problem, schema.fix)
        return
    yield ok("schema", "matches this release, all migrations are applied")
    if (restored := database_checks.restore_fault()) is not None:
        yield fail("restore", restored.problem, restored.fix)
    faults = database_checks.key_faults()
    for fault in faults:
        yield fail("keys", fault.problem, fault.fix)
    if not faults:
        yield ok("keys", "AGENTHOST_KEY_RING and AGENTHOST_SECRET_KEY match the database")
        yield from check_rotation()


def check_rotation() -> Iterator[Finding]:
    """Which keys of the ring are in use, and whether the former secret keys are still needed."""
    ring = sealing.key_ids()
    for key, counts in sealed_values.counts_by_key().items():
        used = ", ".join(f"{count} {name}" for name, count in counts.items())
        number = sum(counts.values())
        if key not in ring:
            fix = "Add that key to the end of AGENTHOST_KEY_RING and run reseal_secrets. If it is lost, they stay unreadable."
            yield warning("keys", f"{number} values are sealed with the key {key}, which is not in the ring: {used}.", fix)
        elif key == ring[0]:
            yield ok("keys", f"the newest key {key} seals: {used or 'nothing yet'}")
        elif counts:
            fix = f"When every process has {ring[0]} first: {installation.manage('reseal_secrets')}"
            yield ok("keys", f"the older key {key} is in use: {used}. {fix}")
        else:
            yield ok("keys", f"the older key {key} is unused; it can be removed from AGENTHOST_KEY_RING")
    if secret_keys.older():
        if database_checks.secret_key_is_recorded():
            detail = (
                "the database has recorded the present AGENTHOST_SECRET_KEY; see docs/rotation.md when to remove the fallbacks"
            )
        else:
            detail = "the database still expects one of AGENTHOST_SECRET_KEY_FALLBACKS. When every process has the new"
            detail += f" AGENTHOST_SECRET_KEY: {installation.manage('accept_keys --secret-key')}"
        yield ok("keys", detail)


def _row(conn: psycopg.Connection[tuple[Any, ...]], statement: str, *parameters: object) -> tuple[Any, ...]:
    row = conn.execute(statement.encode(), parameters or None).fetchone()
    assert row is not None
    return row
