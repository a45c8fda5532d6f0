"""Forgetting: events that are old enough, and all of a session that is gone.

What is deleted is marked in the same transaction, so that a reader from before it is told. Each tenant has
a mark over all its sessions too: the deltas below it are done with, and need not be looked through again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import connection

from sessions_app.core.events import STREAM_KINDS
from sessions_app.core.journal import dialect
from sessions_app.core.prepared import adapted

KEPT = 1000
"""A tenant's newest numbers, which are never pruned."""


def everything_of(tenant: int) -> int:
    """Where a tenant's mark over all its sessions stands, far from sessions and from tenants' own tails."""
    return -(1 << 62) - tenant


_LIVE = """
 exists (select 1 from sessions_app_turn t where t.session_id = e.session_id and t.state in ('queued', 'running', 'waiting')
   and e.seq >= coalesce((select max(s.seq) from event s where s.session_id = e.session_id and s.kind = 'turn_started'), 0))
"""

_KINDS = ", ".join(f"'{kind.value}'" for kind in sorted(STREAM_KINDS))

_OLD_DELTAS = f"""
select e.seq, e.session_id from event e where e.tenant_id = %s
 and e.seq > coalesce((select through from pruned where session_id = %s), 0) and e.seq <= %s
 and e.at < %s and e.kind in ({_KINDS}) and not {_LIVE} order by e.seq limit %s
"""

_OLD_EVENTS = f"""
select e.seq, e.session_id from event e where e.tenant_id = %s and e.seq <= %s and e.at < %s and not {_LIVE}
 order by e.seq limit %s
"""

_MARK = """
insert into pruned (session_id, through) values (%s, %s) on conflict (session_id)
 do update set through = excluded.through where excluded.through > pruned.through
"""


def prune(delta_before: datetime, event_before: datetime, batch: int) -> int:
    """Delete deltas and other events that are older, ``batch`` a transaction; how many there were.

    Never a tenant's newest ``KEPT`` numbers, never the events of a turn that is still alive.
    """
    with connection.cursor() as cursor:
        cursor.execute("select tenant_id, seq from tenant_counter where seq > %s order by tenant_id", (KEPT,))
        tenants = cursor.fetchall()
    deleted = 0
    for tenant, counter in tenants:
        upto = counter - KEPT
        # The oldest first: what goes whole need not be looked at for its deltas.
        old = _last_before(tenant, upto, event_before)
        deleted += _all_batches(tenant, _OLD_EVENTS, (tenant, old, event_before, batch))
        old = _last_before(tenant, upto, delta_before)
        deleted += _all_batches(tenant, _OLD_DELTAS, (tenant, everything_of(tenant), old, delta_before, batch))
    return deleted


def _last_before(tenant: int, upto: int, moment: datetime) -> int:
    """The number up to which a tenant's events are older. Found by halving: times rise with numbers."""
    older, newer = 0, upto + 1
    with connection.cursor() as cursor:
        while newer - older > 1:
            middle = (older + newer) // 2
            cursor.execute(
                "select seq, at < %s from event where tenant_id = %s and seq between %s and %s order by seq limit 1",
                adapted((moment, tenant, middle, upto)),
            )
            row = cursor.fetchone()
            if row is not None and row[1]:
                older = row[0]
            else:
                newer = middle
    return older


def _all_batches(tenant: int, sql: str, params: tuple[Any, ...]) -> int:
    deleted = 0
    while True:
        count = _one_batch(tenant, sql, params)
        deleted += count
        if count < params[-1]:
            return deleted


def _one_batch(tenant: int, sql: str, params: tuple[Any, ...]) -> int:
    with dialect.current().writing(), connection.cursor() as cursor:
        cursor.execute(sql, adapted(params))
        rows: list[tuple[int, int]] = cursor.fetchall()
        if not rows:
            return 0
        _delete(cursor, tenant, [seq for seq, _ in rows])
        through: dict[int, int] = {everything_of(tenant): rows[-1][0]}
        for seq, session in rows:
            through[session] = max(seq, through.get(session, 0))
        # In one order, so that two prunings at a time cannot wait for each other.
        for session in sorted(through):
            cursor.execute(_MARK, (session, through[session]))
        return len(rows)


def _delete(cursor: Any, tenant: int, numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), 500):
        some = numbers[start : start + 500]
        places = ",".join(["%s"] * len(some))
        cursor.execute(f"delete from event where tenant_id = %s and seq in ({places})", (tenant, *some))


_FORGET_BATCH = 1000


def forget_session(session: int) -> None:
    """Delete all that the journal has of a session that no longer exists, in transactions of bounded size."""
    while True:
        with dialect.current().writing(), connection.cursor() as cursor:
            cursor.execute(
                "select tenant_id, seq from event where session_id = %s order by seq limit %s", (session, _FORGET_BATCH)
            )
            rows = cursor.fetchall()
            if not rows:
                cursor.execute("delete from session_tail where session_id = %s", (session,))
                cursor.execute("delete from pruned where session_id = %s", (session,))
                return
            _delete(cursor, rows[0][0], [seq for _, seq in rows])
