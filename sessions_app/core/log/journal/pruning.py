"""Deletes old events, and all events of deleted sessions.

A deletion stores a mark in the same transaction, so that readers from an earlier position get PositionPruned. Each tenant
has a mark for all its sessions too: the deltas below it are done and need not be searched again.

Only the partition 0 is pruned by row. On SQLite that is all events; on Postgres most stream events are in others, which are
emptied whole (partitions).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import connection

from sessions_app.core.base import journal_keys
from sessions_app.core.base.maintenance import Round
from sessions_app.core.base.raw_sql import adapted
from sessions_app.core.log.journal import dialect, partitions
from sessions_app.core.log.journal.kinds_in_sql import STREAM
from sessions_app.core.log.journal.marks import MARK, SKIPPED, skipped_mark, tenant_mark

KEPT = 1000
"""A tenant's newest numbers, which are never pruned."""


_LIVE = """
 exists (select 1 from sessions_app_turn t where t.session_id = e.session_id and t.state in ('queued', 'running', 'waiting')
   and e.seq >= coalesce((select max(s.seq) from event s where s.partition = 0 and s.session_id = e.session_id
    and s.kind = 'turn_started'), 0))
"""


_OLD_DELTAS = f"""
select e.seq, e.session_id from event e where e.partition = 0 and e.tenant_id = %s
 and e.seq > coalesce((select through from pruned where session_id = %s), 0) and e.seq <= %s
 and e.at < %s and e.kind in ({STREAM}) and not {_LIVE} order by e.seq limit %s
"""

_OLD_EVENTS = f"""
select e.seq, e.session_id from event e where e.partition = 0 and e.tenant_id = %s and e.seq <= %s and e.at < %s
 and not {_LIVE}
 order by e.seq limit %s
"""

_MARKED = "select coalesce((select through from pruned where session_id = %s), 0)"

_STILL_THERE = f"""
select e.session_id, max(e.seq) from event e where e.partition = 0 and e.tenant_id = %s and e.seq > %s and e.seq <= %s
 and e.kind in ({STREAM}) group by e.session_id
"""

# Skipped deltas of sessions without a live turn, or with one that began after them.
_SKIPPED_AND_ENDED = """
select p.session_id, p.through from pruned p where p.session_id > %s and p.session_id < %s
 and (not exists (select 1 from sessions_app_turn t where t.session_id = %s - p.session_id
   and t.state in ('queued', 'running', 'waiting'))
  or p.through < (select max(s.seq) from event s where s.partition = 0 and s.session_id = %s - p.session_id
   and s.kind = 'turn_started'))
 order by p.session_id limit %s
"""

_OLD_DELTAS_OF_SESSION = f"""
select e.tenant_id, e.seq from event e where e.partition = 0 and e.session_id = %s and e.seq <= %s and e.at < %s
 and e.kind in ({STREAM}) and not {_LIVE} order by e.seq limit %s
"""


_UNMARK = f"""
delete from pruned where session_id = %s and through = %s
 and not exists (select 1 from event e where e.partition = 0 and e.session_id = %s and e.seq <= %s and e.kind in ({STREAM}))
"""


def prune(delta_before: datetime, event_before: datetime, batch: int, this: Round | None = None) -> int:
    """Delete deltas and other events that are older, ``batch`` per transaction; returns their number.

    A tenant's newest ``KEPT`` numbers and the events of live turns stay. ``this``: the maintenance round that limits the time;
    a tenant whose events cannot be deleted is skipped.
    """
    this = Round(math.inf) if this is None else this
    with connection.cursor() as cursor:
        cursor.execute("select tenant_id, seq from tenant_counter where seq > %s", (KEPT,))
        counters: dict[int, int] = dict(cursor.fetchall())
    # In random order, so that no tenant is always behind those that use up the time.
    tenants = random.sample(sorted(counters), len(counters))

    def prune_tenant(tenant: int) -> int:
        upto = counters[tenant] - KEPT
        # Old events of all kinds first: their deltas need no separate search.
        old = _last_before(tenant, upto, event_before)
        deleted = _all_batches(this, tenant, _OLD_EVENTS, (tenant, old, event_before, batch))
        old = _last_before(tenant, upto, delta_before)
        deleted += _all_batches(this, tenant, _OLD_DELTAS, (tenant, tenant_mark(tenant), old, delta_before, batch))
        if not this.over:
            _advance(tenant, old)
        return deleted

    # Skipped deltas first: their mark moves when a later turn of the session is skipped too.
    return _prune_skipped(this, delta_before, batch) + this.for_each(tenants, prune_tenant)


def empty_partitions(now: datetime, keep_for: timedelta, this: Round | None = None) -> int:
    """Remove stream events that are older by whole partitions; returns how many were emptied. What ``prune`` keeps stays."""
    return partitions.keep(now, keep_for, KEPT, Round(math.inf) if this is None else this)


def _prune_skipped(this: Round, delta_before: datetime, batch: int) -> int:
    """Delete the skipped deltas of sessions whose turn has ended since."""
    deleted, after = 0, tenant_mark(0)
    while not this.over:
        with connection.cursor() as cursor:
            cursor.execute(_SKIPPED_AND_ENDED, (after, SKIPPED, SKIPPED, SKIPPED, batch))
            marks: dict[int, int] = dict(cursor.fetchall())
        deleted += this.for_each(sorted(marks), partial(_prune_mark, this, marks, delta_before, batch))
        if len(marks) < batch:
            break
        after = max(marks)
    return deleted


def _prune_mark(this: Round, marks: Mapping[int, int], delta_before: datetime, batch: int, key: int) -> int:
    session, through, deleted = SKIPPED - key, marks[key], 0
    while not this.over:
        with dialect.current().writing(), connection.cursor() as cursor:
            cursor.execute(_OLD_DELTAS_OF_SESSION, adapted((session, through, delta_before, batch)))
            rows: list[tuple[int, int]] = cursor.fetchall()
            if rows:
                _delete(cursor, rows[0][0], [seq for _, seq in rows])
                cursor.execute(MARK, (session, rows[-1][1]))
            deleted += len(rows)
            if len(rows) < batch:
                cursor.execute(_UNMARK, (key, through, session, through))
                break
    return deleted


_OLD_DELTAS_COVERED = f"""
select e.tenant_id, e.seq from event e where e.session_id = %s and e.seq <= %s and e.at < %s and e.kind in ({STREAM})
 order by e.seq limit %s
"""


def prune_covered(key: int, through: int, before: datetime, batch: int) -> int:
    """Delete a terminal's stream events up to this number that are older; returns their number, at most ``batch``.

    The caller has stored what they say elsewhere.
    """
    with dialect.current().writing(), connection.cursor() as cursor:
        cursor.execute(_OLD_DELTAS_COVERED, adapted((key, through, before, batch)))
        rows: list[tuple[int, int]] = cursor.fetchall()
        if rows:
            _delete(cursor, rows[0][0], [seq for _, seq in rows])
            cursor.execute(MARK, (key, rows[-1][1]))
        return len(rows)


_STEP = 1000
"""A tenant's mark moves at least by this, so that not every round writes it."""


def _advance(tenant: int, upto: int) -> None:
    """Move the tenant's mark to a number below which no deltas are left but skipped ones."""
    key = tenant_mark(tenant)
    with dialect.current().writing(), connection.cursor() as cursor:
        cursor.execute(_MARKED, (key,))
        ((before,),) = cursor.fetchall()
        if upto - before < _STEP:
            return
        cursor.execute(_STILL_THERE, (tenant, before, upto))
        through = {skipped_mark(session): seq for session, seq in cursor.fetchall() if journal_keys.is_session(session)}
        through[key] = upto
        for session in sorted(through):
            cursor.execute(MARK, (session, through[session]))


def _last_before(tenant: int, upto: int, moment: datetime) -> int:
    """The number up to which a tenant's events are older, by binary search: times increase with numbers."""
    older, newer = 0, upto + 1
    with connection.cursor() as cursor:
        while newer - older > 1:
            middle = (older + newer) // 2
            cursor.execute(
                "select seq, at < %s from event where partition = 0 and tenant_id = %s and seq between %s and %s"
                " order by seq limit 1",
                adapted((moment, tenant, middle, upto)),
            )
            row = cursor.fetchone()
            if row is not None and row[1]:
                older = row[0]
            else:
                newer = middle
    return older


def _all_batches(this: Round, tenant: int, sql: str, params: tuple[Any, ...]) -> int:
    deleted = 0
    while not this.over:
        count = _one_batch(tenant, sql, params)
        deleted += count
        if count < params[-1]:
            break
    return deleted


def _one_batch(tenant: int, sql: str, params: tuple[Any, ...]) -> int:
    with dialect.current().writing(), connection.cursor() as cursor:
        cursor.execute(sql, adapted(params))
        rows: list[tuple[int, int]] = cursor.fetchall()
        if not rows:
            return 0
        cursor.execute(_MARKED, (tenant_mark(tenant),))
        ((before,),) = cursor.fetchall()
        _delete(cursor, tenant, [seq for seq, _ in rows])
        through: dict[int, int] = {tenant_mark(tenant): rows[-1][0]}
        for seq, session in rows:
            through[session] = max(seq, through.get(session, 0))
        # Deltas below the tenant's new mark that still exist were skipped.
        cursor.execute(_STILL_THERE, (tenant, before, rows[-1][0]))
        through.update((skipped_mark(session), seq) for session, seq in cursor.fetchall() if journal_keys.is_session(session))
        # In one order, so that two parallel prunings cannot deadlock.
        for session in sorted(through):
            cursor.execute(MARK, (session, through[session]))
        return len(rows)


def _delete(cursor: Any, tenant: int, numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), 500):
        some = numbers[start : start + 500]
        places = ",".join(["%s"] * len(some))
        cursor.execute(f"delete from event where tenant_id = %s and seq in ({places})", (tenant, *some))


_FORGET_BATCH = 1000


def forget_events(key: int, through: int) -> None:
    """Delete a terminal's events up to this number, of all kinds, in transactions of bounded size.

    The caller has stored what they say elsewhere. Readers from before get PositionPruned.
    """
    while True:
        with dialect.current().writing(), connection.cursor() as cursor:
            cursor.execute(
                "select tenant_id, seq from event where session_id = %s and seq <= %s order by seq limit %s",
                (key, through, _FORGET_BATCH),
            )
            rows = cursor.fetchall()
            if rows:
                _delete(cursor, rows[0][0], [seq for _, seq in rows])
                cursor.execute(MARK, (key, rows[-1][1]))
            if len(rows) < _FORGET_BATCH:
                return


def forget_session(session: int) -> None:
    """Delete all events and marks of a deleted session, in transactions of bounded size."""
    while True:
        with dialect.current().writing(), connection.cursor() as cursor:
            cursor.execute(
                "select tenant_id, seq from event where session_id = %s order by seq limit %s", (session, _FORGET_BATCH)
            )
            rows = cursor.fetchall()
            if not rows:
                cursor.execute("delete from session_tail where session_id = %s", (session,))
                marks = (session, skipped_mark(session)) if journal_keys.is_session(session) else (session, session)
                cursor.execute("delete from pruned where session_id in (%s, %s)", marks)
                return
            _delete(cursor, rows[0][0], [seq for _, seq in rows])
