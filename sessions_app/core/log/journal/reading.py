"""Reading the journal. Each function is one statement, so it sees one snapshot.

Events that a client has received must not be lost in a crash, so the reads for streams wait for a barrier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models.functions import Length, Substr

from agents_app import exact_json
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import RUN_START_KINDS, Kind
from sessions_app.core.log.journal import barriers, dialect
from sessions_app.core.log.journal.types import Event, Gap, SessionRead, TenantRead
from sessions_app.models import Event as Event_


@dataclass(frozen=True, slots=True)
class Tail:
    """A session's last number, the one before that, and its highest fence."""

    seq: int
    prev: int
    fence: int


@contextmanager
def snapshot() -> Iterator[None]:
    """A read-only transaction whose reads see one snapshot; never nested in another transaction."""
    with dialect.current().snapshot():
        yield


def _all(sql: str, params: tuple[Any, ...] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


_IN_GAP = "(select count(*) from journal_gap where tenant_id = %s and after < %s and upto >= %s)"
_THROUGH = "(select through from pruned where session_id = %s)"


MOST_BYTES = 8 * 1024 * 1024
"""The maximum size of payloads in one read, which returns at least one event."""


def _sized(columns: str, condition: str) -> str:
    """A subquery of events in order; its last parameter is the row limit. ``size`` is the running total of bytes."""
    # Limited before it is summed: otherwise the database sorts all events that meet the condition.
    limited = f"(select {columns} from event where {condition} order by seq limit %s) l"
    size = f"sum({dialect.current().DATA_BYTES}) over (order by seq) as size, {dialect.current().DATA_BYTES} as own"
    return f"(select {columns}, {size} from {limited})"


def _within(most: int) -> str:
    """The condition that the events before this one do not exceed the size limit."""
    return f"e.size - e.own < {most}"


def _page(rows: list[Any], limit: int, most: int) -> tuple[list[Any], bool]:
    """The rows of one read, and whether more may follow. The last column is the running total of bytes."""
    full = bool(rows) and rows[-1][-1] >= most
    return rows[:limit], full or len(rows) > limit


def read_session(tenant: int, session: int, after: int, limit: int = 1000) -> SessionRead:
    """A session's events after a position, which are on disk when this returns. PositionPruned if some are missing."""
    # By session alone: with the tenant in the condition the planner may walk all of the tenant's events.
    rows = _all(
        f"select h.counter, h.through, h.gaps, h.tails, h.era, e.seq, e.kind, e.data, e.fence, e.size from (select"
        f" (select seq from tenant_counter where tenant_id = %s) as counter, {_THROUGH} as through, {_IN_GAP} as gaps,"
        f" (select count(*) from session_tail where session_id = %s) as tails,"
        f" {dialect.current().ERA} as era) h left join"
        f" {_sized('tenant_id, seq, kind, data, fence', 'session_id = %s and seq > %s')} e"
        f" on e.tenant_id = %s and {_within(MOST_BYTES)} order by e.seq",
        (tenant, session, tenant, after, after, session, session, after, limit + 1, tenant),
    )
    counter, through, gaps, tails, era = rows[0][:5]
    # Without a tail the session was deleted, and its events with it. A number beyond the counter was lost in a crash, and
    # nothing has been appended since that would have recorded the gap.
    if gaps or not tails or after > (counter or 0) or (through is not None and after < through):
        raise PositionPruned
    found, more = _page([row for row in rows if row[5] is not None], limit, MOST_BYTES)
    events = [Event(seq, session, kind, data, fence) for *_, seq, kind, data, fence, _size in found]
    barriers.wait(era)
    return SessionRead(events, counter or 0, more)


@dataclass(frozen=True, slots=True)
class Shown:
    """A stored event for people. ``data``: the start of its payload, which has ``size`` characters."""

    seq: int
    kind: str
    at: datetime
    fence: int | None
    data: str
    size: int


def span(session: int) -> tuple[int | None, int | None]:
    """The numbers of a session's first and last stored event."""
    ((first, last),) = _all("select min(seq), max(seq) from event where session_id = %s", (session,))
    return first, last


def browse(session: int, *, after: int | None, before: int | None, limit: int, most: int) -> list[Shown]:
    """A page of a session's events in order: those behind ``after``, or before ``before``, or else the last ones."""
    stored = Event_.objects.filter(session_id=session)
    if after is not None:
        stored = stored.filter(seq__gt=after).order_by("seq")
    elif before is not None:
        stored = stored.filter(seq__lt=before).order_by("-seq")
    else:
        stored = stored.order_by("-seq")
    cut = stored.annotate(start=Substr("data", 1, most), size=Length("data"))
    found = [Shown(*row) for row in cut.values_list("seq", "kind", "at", "fence", "start", "size")[:limit]]
    return found if after is not None else found[::-1]


def latest(session: int, kinds: Collection[Kind], limit: int) -> list[Any]:
    """Payloads of the session's last events of these kinds, the newest first."""
    among = ", ".join(["%s"] * len(kinds))
    sql = f"select data from event where session_id = %s and kind in ({among}) order by seq desc limit %s"
    return [exact_json.loads(data) for (data,) in _all(sql, (session, *kinds, limit))]


def read_tenant(tenant: int, after: int, limit: int = 1000) -> TenantRead:
    """All of a tenant's events after a position, which are on disk when this returns.

    Pruned and lost events are left out without an error; ``gaps`` and ``read_session`` report them.
    """
    rows = _all(
        f"select h.counter, h.era, e.seq, e.session_id, e.kind, e.data, e.fence, e.size from (select"
        f" (select seq from tenant_counter where tenant_id = %s) as counter, {dialect.current().ERA} as era) h"
        f" left join {_sized('seq, session_id, kind, data, fence', 'tenant_id = %s and seq > %s')} e"
        f" on {_within(MOST_BYTES)} order by e.seq",
        (tenant, tenant, after, limit + 1),
    )
    counter, era = rows[0][:2]
    found, more = _page([row for row in rows if row[2] is not None], limit, MOST_BYTES)
    events = [Event(*row[2:-1]) for row in found]
    barriers.wait(era)
    if more:
        return TenantRead(events, events[-1].seq, more=True)
    return TenantRead(events, max(counter or 0, after), more=False)


def read_several(tenant: int, sessions: Collection[int], after: int, limit: int, most_bytes: int = MOST_BYTES) -> SessionRead:
    """The events of these sessions after a position, in the tenant's order, which are on disk when this returns.

    PositionPruned if some are missing or one of the sessions was deleted.
    """
    wanted = tuple(sorted(set(sessions)))
    places = ",".join(["%s"] * len(wanted))
    rows = _all(
        f"select h.counter, h.through, h.gaps, h.tails, h.era, e.seq, e.session_id, e.kind, e.data, e.fence, e.size from (select"
        f" (select seq from tenant_counter where tenant_id = %s) as counter,"
        f" (select max(through) from pruned where session_id in ({places})) as through, {_IN_GAP} as gaps,"
        f" (select count(*) from session_tail where session_id in ({places})) as tails,"
        f" {dialect.current().ERA} as era) h left join"
        f" {_sized('seq, session_id, kind, data, fence', f'session_id in ({places}) and seq > %s')} e"
        f" on {_within(most_bytes)} order by e.seq",
        (tenant, *wanted, tenant, after, after, *wanted, *wanted, after, limit + 1),
    )
    counter, through, gaps, tails, era = rows[0][:5]
    if gaps or tails < len(wanted) or (through is not None and after < through):
        raise PositionPruned
    found, more = _page([row for row in rows if row[5] is not None], limit, most_bytes)
    events = [Event(*row[5:-1]) for row in found]
    barriers.wait(era)
    return SessionRead(events, counter or 0, more)


def counter_and_sessions(tenant: int) -> tuple[int, int]:
    """The tenant's last number and its number of sessions."""
    rows = _all("select seq, sessions from tenant_counter where tenant_id = %s", (tenant,))
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def counters(tenant_ids: Collection[int]) -> dict[int, int]:
    """Each tenant's last number."""
    if not tenant_ids:
        return {}
    wanted = tuple(tenant_ids)
    places = ",".join(["%s"] * len(wanted))
    return dict(_all(f"select tenant_id, seq from tenant_counter where tenant_id in ({places})", wanted))


def gaps(tenant: int, beyond: int) -> list[Gap]:
    """The tenant's numbers above ``beyond`` that were lost in crashes of the database."""
    rows = _all("select after, upto from journal_gap where tenant_id = %s and upto > %s order by after", (tenant, beyond))
    return [Gap(*row) for row in rows]


def knows_position(tenant: int, session: int, seq: int) -> bool:
    """Whether an event of this session has this number. PositionPruned if it had, or may have had, one that is gone."""
    ((gap, through, known),) = _all(
        f"select {_IN_GAP}, {_THROUGH}, (select count(*) from event where tenant_id = %s and seq = %s and session_id = %s)",
        (tenant, seq, seq, session, tenant, seq, session),
    )
    if gap or (through is not None and seq < through):
        raise PositionPruned
    return bool(known) or seq == through


def latest_run_start(session: int) -> int | None:
    """The number of the newest event that starts a run for clients."""
    # The kinds are literals in the statement, because the index for it is a partial one.
    kinds = ", ".join(f"'{kind.value}'" for kind in sorted(RUN_START_KINDS))
    ((seq,),) = _all(f"select max(seq) from event where partition = 0 and session_id = %s and kind in ({kinds})", (session,))
    return None if seq is None else int(seq)


def run_start(session: int, turn: str, run: int) -> int | None:
    """The number of the event that started this run for clients; None if it was deleted."""
    kinds = ", ".join(f"'{kind.value}'" for kind in sorted(RUN_START_KINDS))
    sql = f"select seq, data from event where partition = 0 and session_id = %s and kind in ({kinds}) order by seq desc"
    rows = _all(sql, (session,))
    for seq, data in rows:
        payload = exact_json.loads(data)
        if (payload["turn"], payload["run"]) == (turn, run):
            return int(seq)
    return None


def open_step(session: int) -> list[Event]:
    """The events since the newest step began, including its start event; none if no step is found."""
    rows = _all(
        "select seq, session_id, kind, data, fence from event where session_id = %s and seq >= ("
        "select seq from event where session_id = %s and kind = %s order by seq desc limit 1) order by seq",
        (session, session, Kind.STEP_STARTED.value),
    )
    return [Event(*row) for row in rows]


def before_open_step(session: int) -> int:
    """The position from which a reader gets the newest step from its start if it is not done, and else only what follows."""
    newest = "select seq, kind from event where session_id = %s and kind in (%s, %s, %s, %s, %s) order by seq desc limit 1"
    kinds = (Kind.STEP_STARTED, Kind.STEP_DONE, Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.TURN_CANCELLED)
    for seq, kind in _all(newest, (session, *(each.value for each in kinds))):
        if kind == Kind.STEP_STARTED.value:
            return int(seq) - 1
    return span(session)[1] or 0


def events_of(key: int, after: int) -> list[Event]:
    """All events under this number after a position. For terminals, whose later events are limited by their checkpoints."""
    rows = _all(
        "select seq, session_id, kind, data, fence from event where session_id = %s and seq > %s order by seq", (key, after)
    )
    return [Event(*row) for row in rows]


def first_number(key: int) -> int:
    """The number of the first event under this number that is still stored; 0 if there is none."""
    ((seq,),) = _all("select min(seq) from event where session_id = %s", (key,))
    return int(seq or 0)


def tail(session_id: int) -> Tail:
    """A session's tail. Every existing session has one."""
    ((seq, prev, fence),) = _all("select seq, prev, fence from session_tail where session_id = %s", (session_id,))
    return Tail(seq, prev, fence)
