"""Checks before a process starts: the database answers, its schema is this release's, and its keys match."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from agenthost import database_diagnosis
from sessions_app.core.records import database_checks
from sessions_app.core.records.database_checks import Fault


def check_before_migrating() -> None:
    """The database answers, was not migrated by a newer release, and was used with this process's keys."""
    _check_connection()
    schema = database_checks.schema_fault()
    if schema is not None and schema.kind != "older":
        _refuse([schema])
    if schema is None or database_checks.is_marked():
        _refuse(database_checks.key_faults())


def check() -> None:
    """The database is ready for use. Stores the markers of schema and keys that are missing."""
    _check_connection()
    _refuse(database_checks.faults())
    database_checks.make_marks()


def check_after_migrating() -> None:
    """``check`` without the question whether a restore is complete: that one needs the migrated schema."""
    _check_connection()
    _refuse(database_checks.key_faults())
    database_checks.make_marks()


def check_before_forking() -> None:
    """``check`` that leaves neither a connection nor a thread. What it loads and stores in memory is shared by the children."""
    wrapper: Any = connection
    with wrapper.unpooled() if connection.vendor == "postgresql" else nullcontext():
        check()


def _check_connection() -> None:
    fault = database_diagnosis.diagnose()
    if fault is not None:
        raise ImproperlyConfigured(fault)


def _refuse(faults: Sequence[Fault]) -> None:
    if faults:
        raise ImproperlyConfigured("\n".join(map(str, faults)))
