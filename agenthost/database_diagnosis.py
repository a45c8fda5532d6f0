"""Explains in one line why the database cannot be used: at every start, and when a command meets a database error.

It connects without the pool, which knows only that it has no connection. No line holds a password.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, NotSupportedError, OperationalError, ProgrammingError, connection

from sessions_app.core.log.journal.barriers import connection_parameters

OWN_TABLE = "django_migrations"
SQLITE_SECONDS = 20.0
"""How long a start waits for another program's lock on a SQLite file."""
_ADVICE = (
    "Is the server running on that host and accepting TCP/IP connections?",
    "Is the server running locally and accepting connections on that socket?",
)


def why_unusable() -> str | None:
    """What is wrong with the database and what to do about it; None if it answers."""
    return _why_not_postgres() if connection.vendor == "postgresql" else why_not_sqlite(sqlite_path())


def explanation(error: BaseException) -> str | None:
    """The same for an error that the database raised; None if the error has another cause."""
    if isinstance(error, NotSupportedError):
        # Django's own sentence about a server that is too old.
        return str(error)
    if isinstance(error, DatabaseError | InterfaceError) and (found := why_unusable()):
        return found
    if (refused := _refused_right(error)) is not None:
        role, said = connection.settings_dict["USER"], str(refused).partition("\n")[0]
        return (
            f'DATABASE_URL: the role "{role}" lacks a right: {said}. migrate needs the role that owns the tables, and'
            " gives the other role its rights with AGENTHOST_RUNTIME_ROLE (docs/operating.md, Two roles of Postgres)."
        )
    if isinstance(error, OperationalError | ProgrammingError):
        from sessions_app.core.records import installation

        fault = installation.schema_fault()
        return None if fault is None else str(fault)
    return None


def _refused_right(error: BaseException) -> psycopg.Error | None:
    """The server's refusal of a right that the role lacks, if that caused the error."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, psycopg.errors.InsufficientPrivilege):
        seen = seen.__cause__ or seen.__context__
    return seen


# Postgres --------------------------------------------------------------------------------------------


def address() -> str:
    """Where the Postgres of DATABASE_URL is, without user and password."""
    database = connection.settings_dict
    host = database["HOST"] or "the local socket"
    return f"{host}:{database['PORT'] or 5432}" if not host.startswith("/") else host


def connect() -> psycopg.Connection[tuple[Any, ...]]:
    """A connection of its own to the Postgres of DATABASE_URL, in autocommit."""
    return psycopg.connect(**connection_parameters(), autocommit=True)


def _why_not_postgres() -> str | None:
    try:
        with closing(connect()) as made:
            made.execute("select 1")
    except psycopg.Error as error:
        return f"DATABASE_URL: {explained(error)}"
    return None


def explained(error: psycopg.Error) -> str:
    """The server's or the driver's own first line, and what to do."""
    name, role = connection.settings_dict["NAME"], connection.settings_dict["USER"]
    said = " ".join(str(error).split()).removeprefix("connection failed: ")
    for advice in _ADVICE:
        said = said.replace(advice, "")
    said = said.strip(" .")
    if f'database "{name}" does not exist' in said:
        fix = f'Create it: CREATE DATABASE "{name}" OWNER "{role}"'
    elif "password" in said or "role" in said:
        fix = "Check the user and password in DATABASE_URL, and the server's pg_hba.conf."
    else:
        fix = "Start Postgres, or correct the host and port in DATABASE_URL."
    return f"the database at {address()} cannot be used: {said or type(error).__name__}. {fix}"


# SQLite ----------------------------------------------------------------------------------------------


def sqlite_path() -> Path:
    return Path(connection.settings_dict["NAME"])


def why_not_sqlite(path: Path) -> str | None:
    """A file that is missing or empty is no fault: migrations fill it. The settings have checked that it can be written."""
    from sessions_app.core.records import installation

    source = "DATABASE_URL" if settings.AGENTHOST_VAR_DIR not in path.parents else "AGENTHOST_VAR_DIR"
    if not path.exists():
        return None
    migrated: set[str] = set()
    try:
        # Read-only: what is not ours is left as it is.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=SQLITE_SECONDS)) as made:
            tables = {name for (name,) in made.execute("select name from sqlite_master where type = 'table'")}
            if OWN_TABLE in tables:
                migrated = {app for (app,) in made.execute(f"select distinct app from {OWN_TABLE}")}
    except sqlite3.OperationalError as error:
        # The file may be whole: it is locked, or this user may not open it or what SQLite keeps beside it.
        return (
            f"{source}: {path} cannot be opened: {error}. Stop the program that has it open, or give file and directory to the"
            " user that runs the server."
        )
    except sqlite3.DatabaseError as error:
        return (
            f"{source}: {path} cannot be read as a SQLite database: {error}. Restore a backup (docs/operating.md), or move the"
            " file away to start with an empty one."
        )
    if tables and OWN_TABLE not in tables:
        return f"{source}: {path} is another program's database (it has the table {min(tables)}). Name another file."
    if foreign := installation.foreign_apps(migrated):
        return f"{source}: {path} is another program's database (it has migrations of {foreign[0]}). Name another file."
    return None
