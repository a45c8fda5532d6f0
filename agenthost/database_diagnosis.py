"""Explains in one line why the database cannot be used, at every start and after a database error.

Connects without the pool, because the pool does not report why it has no connection. No line contains a password.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, NotSupportedError, OperationalError, ProgrammingError, connection

from sessions_app.core.base.own_connection import connection_parameters

DJANGO_TABLE = "django_migrations"
SQLITE_SECONDS = 20.0
"""How long the start waits for another program's lock on a SQLite file."""
_ADVICE = (
    "Is the server running on that host and accepting TCP/IP connections?",
    "Is the server running locally and accepting connections on that socket?",
)


def diagnose() -> str | None:
    """The fault of the database and its fix; None if the database answers."""
    return _diagnose_postgres() if connection.vendor == "postgresql" else diagnose_sqlite(sqlite_path())


def diagnose_error(error: BaseException) -> str | None:
    """The cause of a database error and its fix; None if the cause is not the database or its configuration."""
    if isinstance(error, NotSupportedError):
        # Django's own message about a server that is too old.
        return str(error)
    if isinstance(error, DatabaseError | InterfaceError) and (fault := diagnose()):
        return fault
    if (denial := _missing_privilege(error)) is not None:
        role, message = connection.settings_dict["USER"], str(denial).partition("\n")[0]
        return (
            f'DATABASE_URL: the role "{role}" lacks a privilege: {message}. Run migrate as the role that owns the tables; with'
            " AGENTHOST_RUNTIME_ROLE set it grants the other role its privileges (docs/operating.md, Two roles of Postgres)."
        )
    if isinstance(error, OperationalError | ProgrammingError):
        from sessions_app.core.records import database_checks

        schema = database_checks.schema_fault()
        return None if schema is None else str(schema)
    return None


def _missing_privilege(error: BaseException) -> psycopg.Error | None:
    """The InsufficientPrivilege error in the chain of causes, if there is one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, psycopg.errors.InsufficientPrivilege):
        cause = cause.__cause__ or cause.__context__
    return cause


# Postgres --------------------------------------------------------------------------------------------


def address() -> str:
    """Host and port of the Postgres in DATABASE_URL, without user and password."""
    database = connection.settings_dict
    host = database["HOST"] or "the local socket"
    return f"{host}:{database['PORT'] or 5432}" if not host.startswith("/") else host


def connect() -> psycopg.Connection[tuple[Any, ...]]:
    """A new connection to the Postgres in DATABASE_URL, outside the pool, in autocommit mode."""
    return psycopg.connect(**connection_parameters(), autocommit=True)


def _diagnose_postgres() -> str | None:
    try:
        with closing(connect()) as conn:
            conn.execute("select 1")
    except psycopg.Error as error:
        return f"DATABASE_URL: {describe(error)}"
    return None


def describe(error: psycopg.Error) -> str:
    """The server's or the driver's own message, and the fix."""
    name, role = connection.settings_dict["NAME"], connection.settings_dict["USER"]
    message = " ".join(str(error).split()).removeprefix("connection failed: ")
    for advice in _ADVICE:
        message = message.replace(advice, "")
    message = message.strip(" .")
    if f'database "{name}" does not exist' in message:
        fix = f'Create it: CREATE DATABASE "{name}" OWNER "{role}"'
    elif "password" in message or "role" in message:
        fix = "Check the user and password in DATABASE_URL, and the server's pg_hba.conf."
    else:
        fix = "Start Postgres, or correct the host and port in DATABASE_URL."
    return f"the database at {address()} cannot be used: {message or type(error).__name__}. {fix}"


# SQLite ----------------------------------------------------------------------------------------------


def sqlite_path() -> Path:
    return Path(connection.settings_dict["NAME"])


def diagnose_sqlite(path: Path) -> str | None:
    """A missing or empty file is not a fault: migrations fill it. The settings have checked that it is writable."""
    from sessions_app.core.records import database_checks

    source = "DATABASE_URL" if settings.AGENTHOST_VAR_DIR not in path.parents else "AGENTHOST_VAR_DIR"
    if not path.exists():
        return None
    migrated: set[str] = set()
    try:
        # Read-only, because the file may belong to another program.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=SQLITE_SECONDS)) as conn:
            tables = {name for (name,) in conn.execute("select name from sqlite_master where type = 'table'")}
            if DJANGO_TABLE in tables:
                migrated = {app for (app,) in conn.execute(f"select distinct app from {DJANGO_TABLE}")}
    except sqlite3.OperationalError as error:
        # Not necessarily damage: the file may be locked, or this user may not open it or its -wal and -shm files.
        return (
            f"{source}: {path} cannot be opened: {error}. Stop the program that has it open, or make the user that runs the"
            " server the owner of the file and its directory."
        )
    except sqlite3.DatabaseError as error:
        return (
            f"{source}: {path} cannot be read as a SQLite database: {error}. Restore a backup (docs/operating.md), or move the"
            " file away to start with an empty database."
        )
    if tables and DJANGO_TABLE not in tables:
        return f"{source}: {path} is another program's database (it has the table {min(tables)}). Configure another file."
    if foreign := database_checks.foreign_apps(migrated):
        return f"{source}: {path} is another program's database (it has migrations of {foreign[0]}). Configure another file."
    return None
