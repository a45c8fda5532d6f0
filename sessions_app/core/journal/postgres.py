"""The journal's dialect for Postgres: its append, its snapshot and its counter's lock.

The order of locks is the tenants' counters by id, then the sessions' tails. A counter is held from the
append to the COMMIT that follows at once, never across a wait for the disk: the append turns that wait
off for its transaction, and whoever needs it waits for a barrier after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from django.db import DatabaseError, connection, transaction

from sessions_app.core import prepared
from sessions_app.core.journal.errors import NoEra
from sessions_app.core.journal.rows import Appended, Landed, Row, Status
from sessions_app.core.prepared import Statement

ERA = "(select id from journal_era)"
"""Which life of the database this is: a crash empties the table, and the next append begins a new one."""

_NEW_ERA = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
ENSURE_ERA = f"insert into journal_era(id) values ({_NEW_ERA}) on conflict do nothing"

LEAP = 1 << 20
"""After a crash a counter goes on at the next multiple of this, beyond whatever was shown and lost."""

LOCK_TIMEOUT_MS = 50
"""How long a worker's flush waits for a row that somebody holds."""

REFUSED = "JN001"
"""The SQLSTATE by which an append inside a pipeline says that it must not be committed."""

# Names: a the era, r rows as given, e those with their session's highest fence, c how many a tenant has, l the locked
# counters, u the counters moved on, g jumps over what a crash lost, n rows with numbers, s tails moved on.
_APPEND = """
with m as materialized (select set_config('synchronous_commit', 'off', true)),
 {era},
 r as materialized (select *, max(fence) over (partition by sid) as mf
   from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::int[], %s::bigint[])
   with ordinality r(tid, sid, kind, data, fence, step, o)),
 e as materialized (select *, row_number() over (partition by tid order by o) as rn,
   sum(step) over (partition by tid order by o) as sofar from r where fence is null or fence = mf),
 c as (select tid, count(*) as n, sum(step) as step from e group by tid),
 l as materialized (select tenant_id, seq, sessions from tenant_counter where tenant_id = any(%s::bigint[])
   order by tenant_id for update {wait}),
 u as (update tenant_counter t set era = a.id, sessions = t.sessions + c.step,
   seq = c.n + case when t.era = a.id then t.seq else (t.seq / {leap} + 1) * {leap} end
   from a, c join l on l.tenant_id = c.tid where t.tenant_id = c.tid
   returning t.tenant_id, t.seq as upto, t.seq - c.n as base, t.era),
 g as (insert into journal_gap(tenant_id, after, upto)
   select u.tenant_id, l.seq, u.base from u join l using (tenant_id) where u.base > l.seq),
 n as materialized (select e.tid, e.sid, e.kind, e.fence, e.o, e.step, u.base + e.rn as seq,
   case when e.step = 0 then e.data else '{{"count":' || (l.sessions + e.sofar)::text || '}}' end as data
   from e join u on u.tenant_id = e.tid join l on l.tenant_id = e.tid),
 s as (update session_tail t set prev = t.seq, seq = x.seq, fence = greatest(t.fence, x.fence)
   from (select sid, max(seq) as seq, max(fence) as fence from n group by sid) x
   where t.session_id = x.sid and (x.fence is null or t.fence <= x.fence) returning t.session_id, t.prev),
 i as (insert into event(tenant_id, seq, session_id, kind, data, fence)
   select n.tid, n.seq, n.sid, n.kind, n.data, n.fence from n join s on s.session_id = n.sid, m order by n.o),
 z as materialized (select r.o, n.seq, s.prev, l.seq as before, u.upto, u.era, case when n.step <> 0 then n.data end as data,
   case when l.tenant_id is null then
          case when exists (select 1 from tenant_counter k where k.tenant_id = r.tid) then 'skipped' else 'missing' end
        when u.tenant_id is null and exists (select 1 from c where c.tid = r.tid) then 'no era'
        when s.session_id is null or n.o is null then
          case when exists (select 1 from session_tail k where k.session_id = r.sid) then 'stale' else 'missing' end
        else 'stored' end as status
   from r left join l on l.tenant_id = r.tid left join u on u.tenant_id = r.tid
   left join n on n.o = r.o left join s on s.session_id = n.sid)
select z.status, z.seq, z.prev, z.before, z.upto, z.era, z.data{refusal} from z order by z.o
"""

_SAY_WHICH = "journal_refuse(string_agg(x.o::text || ':' || x.status, ',' order by x.o) filter (where x.status <> 'stored'))"
_ALL_OR_NOTHING = f", (select {_SAY_WHICH} from z x having count(*) filter (where x.status <> 'stored') > 0) as refusal"
_SOMETHING = f", (select {_SAY_WHICH} from z x having count(*) filter (where x.status = 'stored') = 0) as refusal"

_ERA_THERE_IS = "a as materialized (select id from journal_era)"
_ERA_BEGUN_HERE = f"""
 b as (insert into journal_era(id) select {_NEW_ERA} where not exists (select 1 from journal_era)
   on conflict do nothing returning id),
 a as materialized (select id from journal_era union all select id from b)"""


def _append(wait: str, refusal: str, era: str = _ERA_THERE_IS) -> str:
    return _APPEND.format(wait=wait, leap=LEAP, refusal=refusal, era=era)


APPEND_ALL = _append("", _ALL_OR_NOTHING)
"""Raises unless all rows are stored, so that a COMMIT already on its way does nothing."""
APPEND_ALL_AT_ONCE = _append("skip locked", _ALL_OR_NOTHING)
"""The same, and a counter that somebody holds is a refusal instead of a wait."""
APPEND_WHAT_IS_FREE = _append("skip locked", _SOMETHING)
"""Stores what it can lock and raises if that is nothing: for a flush of nothing but deltas."""

# A transaction of Django's cannot be tried again from here, so it begins the era itself if it is the first after a crash.
_LAST = _append("", _ALL_OR_NOTHING, _ERA_BEGUN_HERE)
_LAST_AT_ONCE = _append("skip locked", _ALL_OR_NOTHING, _ERA_BEGUN_HERE)


def numbers(values: Sequence[int | None]) -> str:
    """An array as text, so that a statement's parameter types, and with them its prepared plan, never vary."""
    return "{" + ",".join("null" if value is None else str(value) for value in values) + "}"


def _texts(values: Sequence[str]) -> str:
    """An array of texts, as text: the driver looks at every character of each for the same outcome."""
    return "{" + ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values) + "}"


def append_parameters(rows: Sequence[Row]) -> tuple[Any, ...]:
    tenants = [row.tenant for row in rows]
    return (
        numbers(tenants),
        numbers([row.session for row in rows]),
        _texts([row.kind for row in rows]),
        _texts([row.data for row in rows]),
        numbers([row.fence for row in rows]),
        numbers([row.sessions for row in rows]),
        numbers(sorted(set(tenants))),
    )


def appended(rows: Sequence[Row], answer: Sequence[Sequence[Any]]) -> Appended:
    """The append's lines as values."""
    before: dict[int, int] = {}
    upto: dict[int, int] = {}
    era: int | None = None
    lines = []
    for row, (status, seq, prev, counter, after, its_era, data, *_) in zip(rows, answer, strict=True):
        if after is not None:
            before[row.tenant], upto[row.tenant], era = counter, after, its_era
        lines.append((row, status, seq, prev, data))
    last: dict[int, int] = {}
    landed = []
    for row, status, seq, prev, data in lines:
        if status == "stored":
            landed.append(Landed("stored", seq, last.get(row.session, prev), row.data if data is None else data))
            last[row.session] = seq
        else:
            landed.append(Landed(status, 0, 0, row.data))
    return Appended(landed, before, upto, era)


def finish(statements: Sequence[Statement], rows: Sequence[Row], *, waiting: bool) -> Appended:
    """The last statements of the open transaction, the append and COMMIT, in one round trip: all of it or nothing.

    Without ``waiting`` a counter that somebody holds is a refusal too.
    """
    append = Statement(_LAST if waiting else _LAST_AT_ONCE, append_parameters(rows))
    try:
        return appended(rows, prepared.finish([*statements, append]))
    except DatabaseError as error:
        refused = _refused(error, rows)
        if refused is None:
            raise
    # The transaction has to be rolled back, and its caller does.
    refused.check(rows)
    raise NoEra


def _refused(error: DatabaseError, rows: Sequence[Row]) -> Appended | None:
    """What the append has said by raising; None: it was not the append."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.diag.sqlstate != REFUSED:
        return None
    lines = [Landed("stored", 0, 0, "") for _ in rows]
    for each in (cause.diag.message_detail or "").split(","):
        ordinal, _, status = each.partition(":")
        lines[int(ordinal) - 1] = Landed(cast(Status, status), 0, 0, "")
    return Appended(lines, {}, {}, None)


def begin_era() -> None:
    """After a crash, which has emptied the table; whoever comes second changes nothing."""
    prepared.execute([Statement(ENSURE_ERA)])


def create_counter(tenant_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ENSURE_ERA)
        cursor.execute(
            "insert into tenant_counter(tenant_id, seq, era, sessions) select %s, 0, id, 0 from journal_era", (tenant_id,)
        )


def lock_counter(tenant_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select 1 from tenant_counter where tenant_id = %s for update", (tenant_id,))


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that may end with an append."""
    with transaction.atomic(durable=True):
        yield


@contextmanager
def snapshot() -> Iterator[None]:
    """A transaction in which all reads see one moment."""
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")
        yield
