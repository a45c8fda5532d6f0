"""The journal's dialect for Postgres: append, snapshots and the counter's lock.

Lock order: the tenants' counters by id, then the sessions' tails. A counter is locked from the append to the COMMIT that
follows immediately, never while waiting for the disk: the append sets synchronous_commit to off, and callers that need
durability wait for a barrier afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

import psycopg
from django.db import DatabaseError, connection, transaction

from sessions_app.core.base import loop_calls, raw_sql
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Following, Stack, Statement
from sessions_app.core.log.journal.errors import NoEra
from sessions_app.core.log.journal.joined_statements import joined
from sessions_app.core.log.journal.kinds_in_sql import PARTITION
from sessions_app.core.log.journal.rows import Appended, AppendedRow, Row, Status

DATA_BYTES = "octet_length(data)"
HAS_PARTITIONS = True
ERA = "(select id from journal_era)"
"""SQL for the era. A crash empties this unlogged table, and the next append starts a new era."""

_NEW_ERA = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
ENSURE_ERA = f"insert into journal_era(id) values ({_NEW_ERA}) on conflict do nothing"

LEAP = 1 << 20
"""After a crash a counter continues at the next multiple of this, beyond all numbers that were sent and lost."""

LOCK_TIMEOUT_MS = 50
"""How long a worker's flush waits for a locked row."""
SHORTEST_LOCK_TIMEOUT_MS = 1
"""How long a flush waits if it only has units that found a row locked before."""

REFUSED = "JN001"
"""The SQLSTATE that an append inside a pipeline raises to prevent its COMMIT."""

# Names: m sets synchronous_commit, a the era, w a write whose rows are the events (append_for_each), x the sessions, l the
# locked counters, u the advanced counters, f the unlocked tails, g gaps after a crash, s the advanced tails, i the inserted
# events, z the status of each session. The database sorts and counts nothing here: everything that can be computed before is
# computed in Python (Append). Only of a write's rows is nothing known before.
_APPEND = """
with m as materialized (select set_config('synchronous_commit', 'off', true)),
 {era},
{write} x as materialized (select * from {sessions} as x(tid, sid, last, fence)),
 l as materialized (select tenant_id, seq, sessions from tenant_counter where tenant_id = any({tenants})
   order by tenant_id for update {wait}),
{free} u as (update tenant_counter t set era = a.id, sessions = t.sessions + c.step,
   seq = c.n + case when t.era = a.id then t.seq else (t.seq / {leap} + 1) * {leap} end
   from a, {counts} as c(tid, n, step) join l on l.tenant_id = c.tid
   where t.tenant_id = c.tid returning t.tenant_id, t.seq as upto, t.seq - c.n as base, t.era),
 g as (insert into journal_gap(tenant_id, after, upto)
   select u.tenant_id, l.seq, u.base from u join l using (tenant_id) where u.base > l.seq),
 s as (update session_tail t set prev = t.seq, seq = u.base + x.last, fence = greatest(t.fence, x.fence)
   from x join u on u.tenant_id = x.tid {if_free} where t.session_id = x.sid and (x.fence is null or t.fence <= x.fence)
   returning t.session_id, t.prev, u.tenant_id, u.base),
 i as (insert into event(tenant_id, seq, session_id, kind, data, fence, partition)
   select s.tenant_id, s.base + r.place, s.session_id, r.kind,
     case when r.sofar is null then r.data else '{{"count":' || (l.sessions + r.sofar)::text || '}}' end, r.fence,
     {partition}
   from {events} as r(sid, place, kind, data, fence, sofar)
   join s on s.session_id = r.sid join l on l.tenant_id = s.tenant_id, m),
 z as materialized (select x.tid, x.sid, l.seq as before, l.sessions, u.base, u.upto, u.era, s.prev,
   case when s.session_id is not null then 'stored'
        when l.tenant_id is null then
          case when exists (select 1 from tenant_counter k where k.tenant_id = x.tid) then 'skipped' else 'missing' end
        when u.tenant_id is null then 'no era'
        {unless_free}
        when exists (select 1 from session_tail k where k.session_id = x.sid) then 'stale' else 'missing' end as status
   from x left join l on l.tenant_id = x.tid left join u on u.tenant_id = x.tid left join s on s.session_id = x.sid)
select z.tid, z.sid, z.status, z.before, z.sessions, z.base, z.upto, z.era, z.prev, y.refusal{written}
from z{of_write}, (select case when count(*) filter (where z.status = 'stored') < {at_least} then journal_refuse(coalesce(
   string_agg({refused} || ':' || z.status, ',') filter (where z.status <> 'stored'), '')) end as refusal from z) y
"""

_OF_PARAMETERS = {
    "write": "",
    "sessions": "unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[])",
    "tenants": "%s::bigint[]",
    "counts": "unnest(%s::bigint[], %s::bigint[], %s::bigint[])",
    "events": "unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::int[], %s::bigint[])",
    "written": "",
    "of_write": "",
    "at_least": "%s",
    "refused": "z.sid::text",
}
# The counters depend on the write's rows, so they are locked after it.
_OF_WRITE = {
    "sessions": "(select tenant_id, session_id, row_number() over (partition by tenant_id order by id), fence from w)",
    "tenants": "array(select tid from x)",
    "counts": "(select tid, count(*), 0 from x group by tid)",
    "events": "(select sid, last, %s::text, data, w.fence, null::bigint from x join w on w.session_id = x.sid)",
    "written": ", w.*",
    "of_write": " join w on w.session_id = z.sid",
    "at_least": "(select count(*) from x)",
    "refused": "z.tid::text || '/' || z.sid::text",
}

_ERA_THERE_IS = "a as materialized (select id from journal_era)"
_ERA_BEGUN_HERE = f"""
 b as (insert into journal_era(id) select {_NEW_ERA} where not exists (select 1 from journal_era)
   on conflict do nothing returning id),
 a as materialized (select id from journal_era union all select id from b)"""


_FREE_TAILS = """
 f as materialized (select session_id from session_tail where session_id in (select sid from x) for update skip locked),
"""
_HELD_TAIL = """
        when not exists (select 1 from f where f.session_id = x.sid)
         and exists (select 1 from session_tail k where k.session_id = x.sid) then 'skipped'
"""


_FREE = {"free": _FREE_TAILS, "if_free": "join f on f.session_id = x.sid", "unless_free": _HELD_TAIL}
_ANY = dict.fromkeys(_FREE, "")


def _append(
    wait: str, tails: Mapping[str, str] = _ANY, era: str = _ERA_THERE_IS, source: Mapping[str, str] = _OF_PARAMETERS
) -> str:
    return _APPEND.format(wait=wait, **tails, leap=LEAP, era=era, partition=PARTITION, **source)


APPEND = _append("")
"""Waits for locked counters. Raises if it stores fewer sessions' events than required (``Append.parameters``), so that a
COMMIT in the same pipeline does nothing."""
APPEND_AT_ONCE = _append("skip locked")
"""The same; skips locked counters."""
APPEND_WITHOUT_WAITING = _append("skip locked", _FREE)
"""The same; skips locked tails too. It costs a tenth more."""

# A Django transaction cannot be repeated here, so its append starts the era itself if it is the first after a crash.
_LAST = _append("", era=_ERA_BEGUN_HERE)
_LAST_AT_ONCE = _append("skip locked", _FREE, _ERA_BEGUN_HERE)


def numbers(values: Iterable[int | None]) -> str:
    """An array as text, so that a statement's parameter types, and with them its prepared plan, are always the same."""
    return "{" + ",".join(map(str, values)).replace("None", "null") + "}"


def _texts(values: Sequence[str]) -> str:
    """An array of texts, as text: faster than the driver, which inspects each character."""
    return "{" + ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values) + "}"


class Append:
    """The parameters of an append of rows, and the interpretation of its result.

    A row's place is its number relative to its tenant's counter. Of each session only rows with the highest fence get one.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._fences: dict[int, int] = {}
        for row in rows:
            if row.fence is not None:
                self._fences[row.session] = max(row.fence, self._fences.get(row.session, row.fence))
        self._places: list[int | None] = []
        self._sofar: list[int | None] = []
        self._counts: dict[int, int] = {}
        self._steps: dict[int, int] = {}
        self._last: dict[int, tuple[int, int]] = {}
        for row in rows:
            place = sofar = None
            if row.fence is None or row.fence == self._fences[row.session]:
                place = self._counts[row.tenant] = self._counts.get(row.tenant, 0) + 1
                self._last[row.session] = (row.tenant, place)
                if row.sessions:
                    sofar = self._steps[row.tenant] = self._steps.get(row.tenant, 0) + row.sessions
            self._places.append(place)
            self._sofar.append(sofar)

    def parameters(self, at_least: int | None = None) -> tuple[Any, ...]:
        """``at_least``: if fewer sessions than this can be stored, nothing is; None: all rows or nothing."""
        rows, places, sofar = self.rows, self._places, self._sofar
        sessions, tenants = self._last, sorted(self._counts)
        if None in places:
            kept = [index for index, place in enumerate(places) if place is not None]
            rows, places, sofar = [rows[n] for n in kept], [places[n] for n in kept], [sofar[n] for n in kept]
            # Rows without a place are never stored, so the append must fail.
            at_least = len(sessions) + 1 if at_least is None else at_least
        return (
            numbers([tenant for tenant, _ in sessions.values()]),
            numbers(sessions),
            numbers([place for _, place in sessions.values()]),
            numbers([self._fences.get(session) for session in sessions]),
            numbers(tenants),
            numbers(tenants),
            numbers([self._counts[tenant] for tenant in tenants]),
            numbers([self._steps.get(tenant, 0) for tenant in tenants]),
            numbers([row.session for row in rows]),
            numbers(places),
            _texts([row.kind for row in rows]),
            _texts([row.data for row in rows]),
            numbers([row.fence for row in rows]),
            numbers(sofar),
            len(sessions) if at_least is None else at_least,
        )

    def appended(self, answer: Sequence[Sequence[Any]]) -> Appended:
        """The result of a successful append, from its rows, one per session."""
        found = {}
        before: dict[int, int] = {}
        upto: dict[int, int] = {}
        its_era: int | None = None
        for tenant, session, status, counter, sessions, base, after, era, prev, _ in answer:
            found[session] = (status, sessions, base, prev)
            if era is not None:
                before[tenant], upto[tenant], its_era = counter, after, era
        lines = []
        last: dict[int, int] = {}
        for row, place, sofar in zip(self.rows, self._places, self._sofar, strict=True):
            status, sessions, base, prev = found[row.session]
            if status == "stored" and place is not None:
                seq = base + place
                data = row.data if sofar is None else f'{{"count":{sessions + sofar}}}'
                lines.append(AppendedRow("stored", seq, last.get(row.session, prev), data))
                last[row.session] = seq
            else:
                lines.append(AppendedRow("stale" if status == "stored" else status, 0, 0, row.data))
        return Appended(lines, before, upto, its_era)

    def refused(self, detail: str) -> Appended:
        """The result of an append that raised: nothing is stored. ``detail`` has the status of each refused session."""
        statuses: dict[int, Status] = {}
        for each in detail.split(",") if detail else ():
            session, _, status = each.partition(":")
            statuses[int(session)] = cast(Status, status)
        lines = []
        for row, place in zip(self.rows, self._places, strict=True):
            status = statuses.get(row.session, "stored")
            lines.append(AppendedRow("stale" if place is None and status == "stored" else status, 0, 0, row.data))
        return Appended(lines, {}, {}, None)


BARRIER = f"select pg_logical_emit_message(true, 'j', '')::text, {ERA}"
"""A transaction that is on disk when it has ended, and with it everything that was committed before. Returns the era."""


_ERA_SEEN = "_agenthost_era_seen"


def _with_barrier(following: Sequence[Following], passed: Callable[[int | None], object]) -> list[Following]:
    """``following``, and a barrier: in the transaction of the last queries if these can be stacked, else alone.

    Their rows are received before the barrier is passed.
    """
    *before, last = following
    barrier = Statement(BARRIER, types=("text", "bigint"))
    stack = Stack.of([*last.statements, barrier]) if last.statements and last.ended is None else None
    if stack is None:
        return [*following, Following([barrier], lambda found: passed(found[0][0][1]))]
    eras: list[int | None] = []

    def received(found: list[Rows]) -> None:
        *rows, of_barrier = stack.rows(found[0])
        eras.append(of_barrier[0][1])
        last.received(rows)

    return [*before, Following([stack.statement], received, lambda: passed(eras[0]))]


def finish(
    statements: Sequence[Sequence[Statement]],
    rows: Sequence[Row],
    *,
    waiting: bool,
    following: Sequence[Following] | None = None,
) -> tuple[Appended, bool]:
    """Run the last statements of the open transaction, the append and COMMIT, atomically and in one round trip.

    ``statements``: those of one list may be joined (joined_statements.py). Without ``waiting`` a locked counter or tail is an
    error too. If ``following`` is given, it and a barrier are part of the round trip; the second value is whether the barrier
    was passed in the append's era.
    """
    append = Append(rows)
    before = [statement for each in statements if each for statement in joined(each)]
    last = Statement(_last_append(waiting=waiting), append.parameters())
    eras: list[int | None] = []
    groups = [] if following is None else _with_barrier(following, eras.append)
    conn = connection.connection
    try:
        appended = append.appended(raw_sql.execute_and_commit([*before, last], groups))
        conn.__dict__[_ERA_SEEN] = True
        return appended, eras == [appended.era]
    except DatabaseError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or cause.diag.sqlstate != REFUSED:
            raise
        refused = append.refused(cause.diag.message_detail or "")
    # These errors make the context manager of the transaction roll it back.
    refused.check(rows)
    conn.__dict__.pop(_ERA_SEEN, None)
    raise NoEra


def _knows_era(conn: Any) -> bool:
    return loop_calls.current() is not None and _ERA_SEEN in conn.__dict__


def _last_append(*, waiting: bool) -> str:
    """Beginning an era costs 0.3 ms. A crash, which ends the era, ends all connections too: only a new one has to do it."""
    if _knows_era(connection.connection):
        return APPEND if waiting else APPEND_WITHOUT_WAITING
    return _LAST if waiting else _LAST_AT_ONCE


@lru_cache(maxsize=8)
def _append_of(write: str, era: str) -> str:
    return _append("skip locked", _FREE, era, {**_OF_WRITE, "write": f" w as ({write}),\n"})


def append_for_each(write: Statement, kind: str) -> tuple[list[tuple[Any, ...]], list[Row], Appended]:
    """Run a write and append an event of this kind for each row that it returns, as one statement and transaction.

    Returns the write's rows, and their events. They begin with ``id, tenant_id, session_id, fence, data``; each has another
    session. Waits for no lock of the append: raises the error of a row that cannot be stored.
    """
    if connection.in_atomic_block:
        raise transaction.TransactionManagementError("append_for_each is a transaction of its own")
    connection.ensure_connection()
    conn = connection.connection
    sql = _append_of(write.sql, _ERA_THERE_IS if _knows_era(conn) else _ERA_BEGUN_HERE)
    try:
        answer = sorted(raw_sql.rows(sql, (*write.params, kind)), key=lambda row: row[_APPENDED])
    except DatabaseError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or cause.diag.sqlstate != REFUSED:
            raise
        _check_refused(cause.diag.message_detail or "", kind)
        conn.__dict__.pop(_ERA_SEEN, None)
        raise NoEra from error
    conn.__dict__[_ERA_SEEN] = True
    written = [row[_APPENDED:] for row in answer]
    rows = [Row(tenant, session, kind, data, fence) for _, tenant, session, fence, data, *_ in written]
    return written, rows, Append(rows).appended([row[:_APPENDED] for row in answer])


_APPENDED = 10
"""How many columns an append returns; the write's follow."""


def _check_refused(detail: str, kind: str) -> None:
    rows, lines = [], []
    for each in detail.split(","):
        place, _, status = each.partition(":")
        tenant, _, session = place.partition("/")
        rows.append(Row(int(tenant), int(session), kind, ""))
        lines.append(AppendedRow(cast(Status, status), 0, 0, ""))
    Appended(lines, {}, {}, None).check(rows)


def follow(following: Following) -> int | None:
    """On the loop, after a COMMIT: its statements and a barrier, in one round trip. The era of the barrier, if it was passed."""
    eras: list[int | None] = []
    raw_sql.execute_following(_with_barrier([following], eras.append))
    return eras[0] if eras else None


def begin_era() -> None:
    """Start a new era after a crash; does nothing if one has started already."""
    raw_sql.execute([Statement(ENSURE_ERA)])


def create_counter(tenant_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ENSURE_ERA)
        cursor.execute(
            "insert into tenant_counter(tenant_id, seq, era, sessions) select %s, 0, id, 0 from journal_era", (tenant_id,)
        )


def lock_counter(tenant_id: int, *, waiting: bool) -> bool:
    """Lock the tenant's counter; False if it is locked and the caller does not wait."""
    with connection.cursor() as cursor:
        how = "" if waiting else " skip locked"
        cursor.execute(f"select 1 from tenant_counter where tenant_id = %s for update{how}", (tenant_id,))
        return waiting or cursor.fetchone() is not None


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that may end with an append."""
    with transaction.atomic(durable=True):
        yield


@contextmanager
def snapshot() -> Iterator[None]:
    """A transaction whose reads see one snapshot."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")
        yield
