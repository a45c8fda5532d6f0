"""Selects the journal's dialect, Postgres or SQLite, for the default database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from sessions_app.core.base.raw_sql import Following, Statement
from sessions_app.core.log.journal import postgres, sqlite
from sessions_app.core.log.journal.rows import Appended, Row


class Dialect(Protocol):
    """The interface of a dialect module; all functions use the calling thread's Django connection."""

    ERA: str
    DATA_BYTES: str
    HAS_PARTITIONS: bool

    def finish(
        self,
        statements: Sequence[Sequence[Statement]],
        rows: Sequence[Row],
        *,
        waiting: bool,
        following: Sequence[Following] | None = None,
    ) -> tuple[Appended, bool]: ...
    def append_for_each(self, write: Statement, kind: str) -> tuple[list[tuple[Any, ...]], list[Row], Appended]: ...
    def follow(self, following: Following) -> int | None: ...
    def begin_era(self) -> None: ...
    def create_counter(self, tenant_id: int) -> None: ...
    def lock_counter(self, tenant_id: int, *, waiting: bool) -> bool: ...
    def writing(self) -> AbstractContextManager[None]: ...
    def snapshot(self) -> AbstractContextManager[None]: ...


def current() -> Dialect:
    match connection.vendor:
        case "postgresql":
            return postgres
        case "sqlite":
            return sqlite
        case vendor:
            raise ImproperlyConfigured(f"the journal supports Postgres and SQLite, not {vendor}")
