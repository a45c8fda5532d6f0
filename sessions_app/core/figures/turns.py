"""Counts turns that have ended, by minute and hour, from their rows.

A minute is always counted as a whole and replaces what was stored for it, so that a round that is repeated changes nothing.
The last minutes are counted again in each round: an end may be committed seconds after its time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from sessions_app.core.base.maintenance import Round
from sessions_app.core.figures import histograms, marks
from sessions_app.core.figures.histograms import Histogram
from sessions_app.models import HOUR, MINUTE, Turn, TurnAttempt, TurnFigures

_MARK = "turns"
AGAIN = timedelta(minutes=3)
"""Longer than a transaction may be idle before the database ends it."""
FIRST_ROUND = timedelta(hours=24)
"""How much of the past the first round counts."""
MOST_A_MINUTE, MOST_AN_HOUR = 300, 600
"""The rows of one bucket. The tenants, keys and agents with the fewest turns are summed beyond it."""
_FETCHED = 2000

Place = tuple[int, int, str]
"""A tenant, a key and an agent."""
ALL: Place = (0, -1, "")


@dataclass(slots=True)
class Sums:
    turns: int = 0
    errors: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    first: Histogram = field(default_factory=dict)
    took: Histogram = field(default_factory=dict)

    def merge(self, other: Sums) -> None:
        self.turns += other.turns
        self.errors += other.errors
        self.outcomes.update(other.outcomes)
        self.causes.update(other.causes)
        histograms.merge(self.first, other.first)
        histograms.merge(self.took, other.took)


def of_row(row: TurnFigures) -> Sums:
    return Sums(
        row.turns,
        row.errors,
        Counter(json.loads(row.outcomes)),
        Counter(json.loads(row.causes)),
        histograms.read(row.first),
        histograms.read(row.took),
    )


_STREAMED = "('text_delta', 'thinking_delta', 'call_opened')"
# The turn's start is the last one of its session before its end: a session has one live turn at a time. The run's first
# output is a few events behind it. The time of that output is not used if it is after the turn's end.
_FIRST_OUTPUT = f"""
 (select e.at from event e where e.session_id = t.session_id and e.kind in {_STREAMED} and e.seq > (
   select r.seq from event r where r.partition = 0 and r.session_id = t.session_id and r.kind in ('turn_started', 'turn_resumed')
   and r.kind = 'turn_started' and r.at < {{ended}} order by r.seq desc limit 1
 ) order by e.seq limit 1)
"""
# A turn that was reopened ends more than once, and each end counts. Of its attempts only the first has a first output: the
# others began when somebody wanted them to. Copies of attempts, in forks, do not count: their turns never ran. CROSS JOIN fixes
# SQLite's join order.
_ENDED = f"""
select t.tenant_id, coalesce(t.api_key_id, 0), s.agent_name, t.state, t.stop_reason, t.error, t.failure, t.run,
 t.created_at, t.ended_at, case when t.attempt > 1 then null else {_FIRST_OUTPUT.format(ended="t.ended_at")} end
from sessions_app_turn t join sessions_app_session s on s.id = t.session_id
where t.ended_at is not null and t.ended_at >= %s and t.ended_at < %s
union all
select t.tenant_id, a.key_id, s.agent_name, 'error', 'error', a.error, a.failure, a.run,
 t.created_at, a.ended_at, case when a.number > 1 then null else {_FIRST_OUTPUT.format(ended="a.ended_at")} end
from sessions_app_turnattempt a cross join sessions_app_turn t join sessions_app_session s on s.id = t.session_id
where a.ended_at >= %s and a.ended_at < %s and t.id = a.turn_id and t.fence > 0
"""


def count(this: Round, now: datetime) -> int:
    """Count the minutes since the last round; returns how many had turns. A later round continues an interrupted one."""
    mark = marks.read(_MARK)
    at = marks.start_of(now - FIRST_ROUND if mark is None else min(mark, now - AGAIN), MINUTE)
    end = marks.start_of(now, MINUTE) + timedelta(seconds=MINUTE)
    counted, hours = 0, set()
    while at < end and not this.over:
        minute = _next_minute(at, end)
        if minute is None:
            at = end
            break
        _count_minute(minute)
        hours.add(marks.start_of(minute, HOUR))
        counted += 1
        at = minute + timedelta(seconds=MINUTE)
    for hour in sorted(hours):
        fold_hour(hour)
    # Written last: minutes whose hour was not summed are counted again.
    marks.write(_MARK, at)
    return counted


def _next_minute(start: datetime, end: datetime) -> datetime | None:
    """The first minute in which a turn or an attempt ended or figures are stored. A day without turns has 1,440 others."""
    wanted = {"ended_at__gte": start, "ended_at__lt": end}
    ended = Turn.objects.filter(**wanted).order_by("ended_at").values_list("ended_at", flat=True)
    failed = TurnAttempt.objects.filter(**wanted).order_by("ended_at").values_list("ended_at", flat=True)
    stored = TurnFigures.objects.filter(width=MINUTE, at__gte=start, at__lt=end).order_by("at").values_list("at", flat=True)
    found = [at for at in (ended.first(), failed.first(), stored.first()) if at is not None]
    return marks.start_of(min(found), MINUTE) if found else None


def _count_minute(start: datetime) -> None:
    end = start + timedelta(seconds=MINUTE)
    sums: dict[Place, Sums] = {}
    with transaction.atomic():
        for row in _ended(start, end):
            _add(sums, row)
        # Fewer than before: sessions were deleted meanwhile. Their turns stay counted.
        stored = TurnFigures.objects.filter(width=MINUTE, at=start, tenant_id=0).values_list("turns", flat=True).first()
        if stored is None or sum(one.turns for one in sums.values()) > stored:
            _replace(MINUTE, start, sums, MOST_A_MINUTE)


def _ended(start: datetime, end: datetime) -> Iterator[Sequence[Any]]:
    with connection.cursor() as cursor:
        cursor.execute(_ENDED, [_time(start), _time(end)] * 2)
        while rows := cursor.fetchmany(_FETCHED):
            yield from rows


def _time(at: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(at)


def _read_time(value: Any) -> datetime | None:
    """A time as the cursor returns it: SQLite has texts."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value).replace(tzinfo=None)


def _add(sums: dict[Place, Sums], row: Sequence[Any]) -> None:
    tenant, key, agent, state, stop, error, failure, run = row[:8]
    began, ended, first = map(_read_time, row[8:11])
    assert began is not None
    assert ended is not None
    one = sums.setdefault((tenant, key, agent), Sums())
    one.turns += 1
    one.outcomes[outcome(state, stop)] += 1
    if state == "error":
        one.errors += 1
        one.causes[cause(error, failure)] += 1
    if first is not None and began <= first <= ended:
        histograms.add(one.first, (first - began).total_seconds())
    if run == 1:
        histograms.add(one.took, max(0.0, (ended - began).total_seconds()))


def outcome(state: str, stop_reason: str) -> str:
    if state != "done":
        return state
    return stop_reason if stop_reason in ("max_tokens", "refusal") else "done"


def cause(error: str, failure: str | None) -> str:
    """The kind of a failure, from its facts if there are any."""
    if failure:
        try:
            found = json.loads(failure)
        except ValueError:
            found = {}
        if isinstance(found, dict) and isinstance(found.get("kind"), str):
            return str(found["kind"])[:64]
    return error or "error"


def _replace(width: int, start: datetime, sums: dict[Place, Sums], most: int) -> None:
    """Store these sums as the whole of a bucket, with their total; within the caller's transaction."""
    TurnFigures.objects.filter(width=width, at=start).delete()
    if not sums:
        return
    total = Sums()
    for one in sums.values():
        total.merge(one)
    rows = {**bounded(sums, most), ALL: total}
    TurnFigures.objects.bulk_create(
        TurnFigures(
            width=width,
            at=start,
            tenant_id=tenant,
            key_id=key,
            agent=agent,
            turns=one.turns,
            errors=one.errors,
            outcomes=json.dumps(one.outcomes),
            causes=json.dumps(one.causes),
            first=histograms.stored(one.first),
            took=histograms.stored(one.took),
        )
        for (tenant, key, agent), one in rows.items()
    )


def bounded(sums: dict[Place, Sums], most: int) -> dict[Place, Sums]:
    """At most ``most`` places: those with the most turns; the others are summed for each tenant, or left to the total."""
    if len(sums) <= most:
        return sums
    ranked = sorted(sums.items(), key=lambda item: -item[1].turns)
    kept = dict(ranked[: most // 2])
    rest: dict[Place, Sums] = {}
    for (tenant, _key, _agent), one in ranked[most // 2 :]:
        rest.setdefault((tenant, -1, ""), Sums()).merge(one)
    kept.update(sorted(rest.items(), key=lambda item: -item[1].turns)[: most - len(kept)])
    return kept


def fold_hour(hour: datetime) -> None:
    """Store an hour as the sum of its minutes."""
    sums: dict[Place, Sums] = {}
    with transaction.atomic():
        end = hour + timedelta(seconds=HOUR)
        for row in _minutes(hour, end):
            sums.setdefault((row.tenant_id, row.key_id, row.agent), Sums()).merge(of_row(row))
        total = sums.pop(ALL, None)
        if total is None:
            return
        _replace(HOUR, hour, sums, MOST_AN_HOUR)


def _minutes(start: datetime, end: datetime) -> Iterable[TurnFigures]:
    return TurnFigures.objects.filter(width=MINUTE, at__gte=start, at__lt=end).iterator(chunk_size=_FETCHED)
