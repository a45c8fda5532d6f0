"""Short lock timeouts for background work.

A request may wait for its own tenant's locks. Work for all tenants may not: it skips locked rows until its next round.
Reads that lock rows use SKIP LOCKED; a short lock timeout covers all other statements. SQLite has a single writer and no
row locks, so nothing changes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from django.db import DatabaseError, OperationalError, connection

from sessions_app.core.base import database

T = TypeVar("T")

_SHORT_MS = 50
"""Longer than any of our transactions locks a row while the database is healthy."""
_SHORTEST_MS = 1


class LockHeld(Exception):
    """Another transaction holds a lock that is needed; nothing was changed."""


class RowLocked(LockHeld):
    """A row is locked."""

    def __init__(self) -> None:
        super().__init__("a row is locked by another transaction")


@contextmanager
def short(transaction: AbstractContextManager[T]) -> Iterator[T]:
    """Run ``transaction`` with a short lock timeout; raises RowLocked if a statement exceeds it."""
    try:
        with transaction as opened:
            _set_timeout(_SHORT_MS)
            yield opened
    except OperationalError as error:
        if database.is_lock_refused(error):
            raise RowLocked from error
        raise


def set_shortest() -> None:
    """In a transaction under ``short``: reduce the lock timeout to the minimum for the remaining statements."""
    _set_timeout(_SHORTEST_MS)


def _set_timeout(milliseconds: int) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"set local lock_timeout = {milliseconds}")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Set the lock timeout of all statements of the calling thread within the block, in any transaction."""
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
            # A lost connection loses its settings too.
            connection.close()


def skip_locked() -> bool:
    """The ``skip_locked`` argument of ``select_for_update`` on this database."""
    return connection.features.has_select_for_update_skip_locked
