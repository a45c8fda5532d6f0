"""A ring of partitions for stream events, on Postgres: what is too old is removed by emptying a partition, not by row.

The stream events of one period go into one partition of the ring; all other events go into partition 0, which is pruned by
row (pruning). A partition in which every event is too old is emptied in two steps. First what must stay, events of live
turns and a tenant's newest ones, is moved to partition 0, and readers from before the rest are refused. A minute later, when no
transaction can have begun before that, it is truncated, which returns its space at once.

Each step may be interrupted anywhere and is repeated. If no step runs, new events go on into the open partition.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import connection, transaction

from sessions_app.core.base import lock_timeouts
from sessions_app.core.base.events import Kind
from sessions_app.core.base.lock_timeouts import LockHeld
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log.journal import dialect
from sessions_app.core.log.journal.marks import MARK, skipped_mark

log = logging.getLogger(__name__)

KEPT = 0
RING = (1, 2, 3, 4)
TABLES = tuple(f"event_ring_{number}" for number in RING)
PERIODS = 2
"""Partitions that the time for which stream events are kept is divided into: one more is open, and one is being emptied."""
_READERS_LEAVE_WITHIN = timedelta(minutes=1)
"""No transaction of a reader lasts longer."""


def keep(now: datetime, keep_for: timedelta, newest: int, this: Round) -> int:
    """One round: begin the next partition when it is time, and remove what is older than ``keep_for``.

    ``newest``: how many of a tenant's last numbers stay. Returns the number of partitions that were emptied.
    """
    if not dialect.current().HAS_PARTITIONS:
        return 0
    emptied = 0
    # What a lock delays is done by a later round; the other steps do not wait for it.
    for number, marked_at in _closed_before(now - keep_for):
        with contextlib.suppress(LockHeld):
            if marked_at is None:
                _take_out_and_mark(this, number, newest, now)
            elif marked_at <= now - _READERS_LEAVE_WITHIN:
                emptied += _empty(number)
    with contextlib.suppress(LockHeld):
        _open_next(now, keep_for / PERIODS)
    return emptied


def _rows(sql: str, params: Any = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _open_next(now: datetime, period: timedelta) -> None:
    """Begin a partition if there is none, or the present one has its period behind it and another one is empty."""
    with lock_timeouts.short(transaction.atomic()), connection.cursor() as cursor:
        cursor.execute("select number, is_open, opened_at from event_partition order by number for update")
        used: dict[int, tuple[bool, datetime]] = {number: (is_open, at) for number, is_open, at in cursor.fetchall()}
        opened = [(number, at) for number, (is_open, at) in used.items() if is_open]
        if opened and now - opened[0][1] < period:
            return
        free = [number for number in RING if number not in used]
        if not free:
            log.warning("event_partitions_all_in_use: stream events are kept for longer than they need to be")
            return
        if opened:
            cursor.execute("update event_partition set is_open = false, closed_at = %s where is_open", (now,))
        # After the present one in the ring, so that they are used evenly.
        after = opened[0][0] if opened else 0
        chosen = min(free, key=lambda number: (number <= after, number))
        cursor.execute("insert into event_partition (number, is_open, opened_at) values (%s, true, %s)", (chosen, now))


def _closed_before(moment: datetime) -> list[tuple[int, datetime | None]]:
    sql = "select number, marked_at from event_partition where not is_open and closed_at <= %s order by closed_at"
    return [(number, marked_at) for number, marked_at in _rows(sql, (moment,))]


# --- what stays -------------------------------------------------------------------------------------------

_TENANTS = "select c.tenant_id from tenant_counter c where c.tenant_id > %(after)s order by c.tenant_id limit %(limit)s"
_NEWEST = f"""
update event e set partition = {KEPT} from tenant_counter c
 where e.partition = %s and c.tenant_id = any(%s) and e.tenant_id = c.tenant_id and e.seq > c.seq - %s
"""

_LIVE = """
select t.session_id from sessions_app_turn t where t.state in ('queued', 'running', 'waiting') and t.session_id > %(after)s
 and exists (select 1 from event e where e.partition = %(number)s and e.session_id = t.session_id)
 order by t.session_id limit %(limit)s
"""
_OF_LIVE_TURN = f"""
update event e set partition = {KEPT} where e.partition = %s and e.session_id = %s and e.seq >= coalesce(
 (select max(s.seq) from event s where s.partition = {KEPT} and s.session_id = %s and s.kind = '{Kind.TURN_STARTED.value}'), 0)
 returning e.seq
"""

_TENANTS_AT_ONCE = 20
_SESSIONS_AT_ONCE = 1000


def _take_out_and_mark(this: Round, number: int, newest: int, now: datetime) -> None:
    done = (
        _for_each_page(this, _TENANTS, {}, _TENANTS_AT_ONCE, partial(_move_newest, number, newest))
        and _for_each_page(this, _LIVE, {"number": number}, _SESSIONS_AT_ONCE, partial(_move_live, number))
        and _mark_sessions(this, number)
    )
    if done:
        with connection.cursor() as cursor:
            cursor.execute("update event_partition set marked_at = %s where number = %s and marked_at is null", (now, number))


def _for_each_page(
    this: Round, sql: str, params: Mapping[str, Any], size: int, work: Callable[[Any, list[int]], None], after: int = -(1 << 62)
) -> bool:
    """Work on ids in pages, each in a transaction of its own; False if the time was over before the last."""
    while not this.over:
        ids = [row[0] for row in _rows(sql, {**params, "after": after, "limit": size})]
        if ids:
            with lock_timeouts.short(transaction.atomic()), connection.cursor() as cursor:
                work(cursor, ids)
            after = ids[-1]
        if len(ids) < size:
            return True
    return False


def _move_newest(number: int, kept: int, cursor: Any, tenants: list[int]) -> None:
    cursor.execute(_NEWEST, (number, tenants, kept))


def _move_live(number: int, cursor: Any, sessions: list[int]) -> None:
    for session in sessions:
        cursor.execute(_OF_LIVE_TURN, (number, session, session))
        moved = [seq for (seq,) in cursor.fetchall()]
        if moved:
            # Pruning by row has gone past them: it finds them by this mark when their turn has ended.
            cursor.execute(MARK, (skipped_mark(session), max(moved)))


# --- the rest ---------------------------------------------------------------------------------------------

# One look into the index for each session: a partition may have a hundred million events.
_SESSIONS = """
with recursive found as (
 (select e.session_id from event e where e.partition = %(number)s and e.session_id > %(after)s order by e.session_id limit 1)
 union all
 select (select e.session_id from event e where e.partition = %(number)s and e.session_id > f.session_id
   order by e.session_id limit 1) from found f where f.session_id is not null
) select session_id from found where session_id is not null limit %(limit)s
"""
_LAST_OF_EACH = """
insert into pruned (session_id, through)
 select * from (select s.id, (select max(e.seq) from event e where e.partition = %s and e.session_id = s.id) as last
   from unnest(%s::bigint[]) as s(id)) each where last is not null order by id
 on conflict (session_id) do update set through = excluded.through where excluded.through > pruned.through
"""


def _mark_sessions(this: Round, number: int) -> bool:
    """Refuse readers from before what is left. Goes on where the round before it has ended."""
    ((after,),) = _rows("select coalesce(marked_session, %s) from event_partition where number = %s", (-(1 << 62), number))
    return _for_each_page(this, _SESSIONS, {"number": number}, _SESSIONS_AT_ONCE, partial(_mark, number), after)


def _mark(number: int, cursor: Any, sessions: list[int]) -> None:
    cursor.execute(_LAST_OF_EACH, (number, sessions))
    cursor.execute("update event_partition set marked_session = %s where number = %s", (sessions[-1], number))


def _empty(number: int) -> int:
    """Truncate a partition. Its lock waits for readers, and others behind it, so it is waited for a few milliseconds only."""
    with lock_timeouts.short(transaction.atomic()), connection.cursor() as cursor:
        cursor.execute(f"truncate table event_ring_{number:d}")
        cursor.execute("delete from event_partition where number = %s and not is_open", (number,))
    return 1
