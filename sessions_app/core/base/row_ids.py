"""Row numbers that are known before their INSERT, so that rows which refer to each other need one round trip.

A process takes a block of numbers from the table's sequence. Numbers of a block that it does not use are lost.
"""

from __future__ import annotations

import os
from collections import deque

from django.db import connection

from sessions_app.core.base import raw_sql

_BLOCK = 1024
_free: dict[str, deque[int]] = {}

# A forked process would use its parent's numbers again.
os.register_at_fork(after_in_child=_free.clear)


def take(table: str) -> int | None:
    """The number of a new row; None where the database has no sequences (SQLite), and INSERT returns it."""
    if connection.vendor != "postgresql":
        return None
    free = _free.setdefault(table, deque())
    while True:
        try:
            # Threads share the block.
            return free.popleft()
        except IndexError:
            sql = "select nextval(pg_get_serial_sequence(%s, 'id')) from generate_series(1, %s)"
            free.extend(number for (number,) in raw_sql.rows(sql, (table, _BLOCK)))


def forget() -> None:
    """For tests: drop the blocks, because the sequences may have been reset."""
    _free.clear()
