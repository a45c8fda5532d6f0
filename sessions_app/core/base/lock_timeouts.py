"""Transactions of background work that wait for nobody's lock.

A request may wait for its own tenant's locks. What serves all tenants may not: it leaves what is locked for its
next round. Reads that lock rows use SKIP LOCKED; everything else is covered by a short lock timeout.
SQLite has one writer and no row locks, so nothing is different there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from django.db import DatabaseError, OperationalError, connection

from sessions_app.core.base import database

T = TypeVar("T")

_PATIENCE_MS = 50
"""Longer than any statement of ours holds a row while its database is well."""
_SHORTEST_PATIENCE_MS = 1


class LockHeld(Exception):
    """Somebody else holds a lock that is needed; nothing was changed."""


class RowLocked(LockHeld):
    """A row is locked."""

    def __init__(self) -> None:
        super().__init__("a row is locked by another transaction")


@contextmanager
def short(transaction: AbstractContextManager[T]) -> Iterator[T]:
    """``transaction``, in which no statement waits for a lock for more than a moment; RowsHeld if one would."""
    try:
        with transaction as opened:
            _wait_at_most(_PATIENCE_MS)
            yield opened
    except OperationalError as error:
        if database.is_lock_refused(error):
            raise RowLocked from error
        raise


def set_shortest() -> None:
    """In a transaction that waits ``briefly``: from now on it hardly waits at all."""
    _wait_at_most(_SHORTEST_PATIENCE_MS)


def _wait_at_most(milliseconds: int) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"set local lock_timeout = {milliseconds}")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limit lock waits of all the calling thread's statements, in whatever transactions they are."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"set lock_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        try:
            with connection.cursor() as cursor:
                cursor.execute("reset lock_timeout")
        except DatabaseError:
            # A connection that is lost takes its settings with it.
            connection.close()


def skip_locked() -> bool:
    """The ``skip_locked`` argument of ``select_for_update`` on this database."""
    return connection.features.has_select_for_update_skip_locked
