"""The journal's dialect for SQLite: append and snapshots.

One transaction writes at a time and its COMMIT waits for the disk, so there are no barriers, eras or counter locks. Write
transactions are IMMEDIATE: a transaction that reads first and writes later fails at once if another has written in between,
regardless of the timeout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connection, transaction

from sessions_app.core.base import raw_sql
from sessions_app.core.base.raw_sql import Following, Statement
from sessions_app.core.log.journal.rows import Appended, AppendedRow, Row

DATA_BYTES = "length(cast(data as blob))"
HAS_PARTITIONS = False
ERA = "null"
"""SQL for the era; null, because everything that was committed is on disk."""


def finish(
    statements: Sequence[Sequence[Statement]],
    rows: Sequence[Row],
    *,
    waiting: bool,  # noqa: ARG001 - its counters need no lock
    following: Sequence[Following] | None = None,  # noqa: ARG001 - for Postgres
) -> tuple[Appended, bool]:
    """Run the last statements of the open transaction and the append; its context manager commits."""
    raw_sql.execute([statement for each in statements for statement in each])
    answer = append(rows)
    answer.check(rows)
    return answer, False


def append_for_each(write: Statement, kind: str) -> tuple[list[tuple[Any, ...]], list[Row], Appended]:
    """Run a write and append an event of this kind for each row that it returns, in one transaction.

    Returns the write's rows, and their events. They begin with ``id, tenant_id, session_id, fence, data``.
    """
    with writing():
        written = raw_sql.rows(write.sql, write.params)
        rows = [Row(tenant, session, kind, data, fence) for _, tenant, session, fence, data, *_ in written]
        appended = append(rows)
        appended.check(rows)
    return written, rows, appended


def follow(following: Following) -> int | None:
    """Its statements; there is no barrier."""
    following.received(raw_sql.rows_of_each(following.statements))
    return None


def append(rows: Sequence[Row]) -> Appended:
    """Append on Django's connection, as the last statements of the open transaction."""
    highest: dict[int, int] = {}
    for row in rows:
        if row.fence is not None:
            highest[row.session] = max(row.fence, highest.get(row.session, row.fence))
    lines: list[AppendedRow] = []
    with connection.cursor() as cursor:
        counters = _rows_by_key(
            cursor, "select tenant_id, seq, sessions from tenant_counter where tenant_id", {row.tenant for row in rows}
        )
        tails = _rows_by_key(
            cursor, "select session_id, seq, fence from session_tail where session_id", {row.session for row in rows}
        )
        before = {tenant: counter[0] for tenant, counter in counters.items()}
        last: dict[int, tuple[int, int]] = {}
        inserts = []
        for row in rows:
            counter, tail = counters.get(row.tenant), tails.get(row.session)
            if counter is None or tail is None:
                lines.append(AppendedRow("missing", 0, 0, row.data))
            elif row.fence is not None and row.fence < max(tail[1], highest[row.session]):
                lines.append(AppendedRow("stale", 0, 0, row.data))
            else:
                counter[0] += 1
                counter[1] += row.sessions
                data = f'{{"count":{counter[1]}}}' if row.sessions else row.data
                previous = last[row.session][0] if row.session in last else tail[0]
                last[row.session] = (counter[0], max(tail[1], highest.get(row.session, 0)))
                lines.append(AppendedRow("stored", counter[0], previous, data))
                inserts.append((row.tenant, counter[0], row.session, row.kind, data, row.fence))
        cursor.executemany(
            "insert into event(tenant_id, seq, session_id, kind, data, fence) values (%s, %s, %s, %s, %s, %s)", inserts
        )
        cursor.executemany(
            "update session_tail set prev = seq, seq = %s, fence = %s where session_id = %s",
            [(seq, fence, session) for session, (seq, fence) in last.items()],
        )
        cursor.executemany(
            "update tenant_counter set seq = %s, sessions = %s where tenant_id = %s",
            [(counter[0], counter[1], tenant) for tenant, counter in counters.items()],
        )
    return Appended(lines, before, {tenant: counter[0] for tenant, counter in counters.items()}, None)


def _rows_by_key(cursor: Any, sql: str, keys: set[int]) -> dict[int, list[int]]:
    wanted = sorted(keys)
    found: dict[int, list[int]] = {}
    # SQLite limits the number of parameters; in old versions to 999.
    for start in range(0, len(wanted), 500):
        some = wanted[start : start + 500]
        cursor.execute(f"{sql} in ({','.join(['%s'] * len(some))})", some)
        found.update((key, [first, second]) for key, first, second in cursor.fetchall())
    return found


def begin_era() -> None:
    """Nothing to do: SQLite has no eras."""


def create_counter(tenant_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into tenant_counter(tenant_id, seq, era, sessions) values (%s, 0, 0, 0)", (tenant_id,))


def lock_counter(tenant_id: int, *, waiting: bool) -> bool:  # noqa: ARG001 - the dialect's
    """Nothing to do: there is only one write transaction at a time."""
    return True


@contextmanager
def _in_mode(mode: str) -> Iterator[None]:
    connection.ensure_connection()
    wrapper: Any = connection
    configured = wrapper.transaction_mode
    with ExitStack() as stack:
        # Django reads the mode when the transaction begins.
        wrapper.transaction_mode = mode
        try:
            stack.enter_context(transaction.atomic(durable=True))
        finally:
            wrapper.transaction_mode = configured
        yield


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that may end with an append."""
    with _in_mode("IMMEDIATE"):
        yield


@contextmanager
def snapshot() -> Iterator[None]:
    """A transaction whose reads see one snapshot; it blocks no writer."""
    with _in_mode("DEFERRED"):
        yield
