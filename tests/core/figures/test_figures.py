"""Figures over time: what operators read on the first page, counted from rows that exist already."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.core import figures
from sessions_app.core.base.maintenance import Round
from sessions_app.core.figures import marks, server, turns, use
from sessions_app.core.records import live_workers
from sessions_app.core.worker import housekeeping
from sessions_app.models import (
    HOUR,
    MINUTE,
    Event,
    ModelUse,
    ServerFigures,
    Session,
    Tenant,
    Turn,
    TurnAttempt,
    TurnFigures,
    TurnState,
    UseFigures,
)
from tests.faces.admin.conversations import make_session, make_tenant, make_turn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return make_tenant("acme")


def now() -> datetime:
    return live_workers.database_clock()


def ended(session: Session, at: datetime, took: float = 4.0, state: TurnState = TurnState.DONE, **given: Any) -> Turn:
    began = at - timedelta(seconds=took)
    return make_turn(session, state, created_at=began, queued_at=began, ended_at=at, **given)


def count(at: datetime | None = None) -> None:
    turns.count(Round(60.0), at or now())


def stored() -> list[tuple[Any, ...]]:
    columns = ("width", "at", "tenant_id", "key_id", "agent", "turns", "errors", "outcomes", "causes", "first", "took")
    return sorted(TurnFigures.objects.values_list(*columns))


def test_a_turn_that_ended_is_in_the_last_hour_with_its_outcome_and_duration(acme: Tenant) -> None:
    session, at = make_session(acme), now()
    ended(session, at - timedelta(minutes=5), took=4.0)
    ended(session, at - timedelta(minutes=5), state=TurnState.ERROR, failure='{"kind":"timeout","attempts":2}')
    ended(session, at - timedelta(minutes=5), state=TurnState.ERROR, error="worker_lost")
    ended(session, at - timedelta(minutes=9), state=TurnState.CANCELLED)
    count()
    hour = figures.series("hour")
    assert (hour.total.turns, hour.total.errors) == (4, 2)
    assert dict(hour.total.outcomes) == {"done": 1, "error": 2, "cancelled": 1}
    assert dict(hour.total.causes) == {"timeout": 1, "worker_lost": 1}
    assert hour.duration(0.5) == pytest.approx(4.0, rel=0.1)
    assert len(hour.points) == 60
    assert [point.turns.turns for point in hour.points if point.turns.turns] == [1, 3]


def test_the_time_to_the_first_output_is_read_from_the_events_of_the_turn(acme: Tenant) -> None:
    session, at = make_session(acme), now() - timedelta(minutes=5)
    turn = ended(session, at, took=4.0)
    kinds = [("turn_started", 0.0), ("run_started", 0.1), ("text_opened", 0.6), ("text_delta", 0.8), ("text_delta", 1.9)]
    for number, (kind, after) in enumerate(kinds, 1):
        moment = turn.created_at + timedelta(seconds=after)
        Event.objects.create(tenant_id=acme.pk, seq=number, session_id=session.pk, kind=kind, data="{}", at=moment)
    count()
    assert figures.series("hour").first_output(0.5) == pytest.approx(0.8, rel=0.1)


def test_counting_again_changes_nothing(acme: Tenant) -> None:
    session = make_session(acme)
    for minutes in (2, 3, 60, 61):
        ended(session, now() - timedelta(minutes=minutes))
    count()
    before = stored()
    count()
    marks.write("turns", now() - timedelta(hours=3))
    count()
    assert stored() == before
    assert figures.series("day").total.turns == 4


def test_a_turn_whose_end_is_committed_late_is_counted_by_the_next_round(acme: Tenant) -> None:
    session, at = make_session(acme), now()
    ended(session, at - timedelta(seconds=30))
    count(at)
    ended(session, at - timedelta(seconds=90))
    count(at + timedelta(seconds=60))
    assert figures.series("hour").total.turns == 2


def test_an_interrupted_count_is_continued_by_the_next_round(acme: Tenant) -> None:
    session = make_session(acme)
    for hours in range(1, 20):
        ended(session, now() - timedelta(hours=hours))
    at = now()
    assert turns.count(Round(0.0), at) == 0
    limited = Round(60.0)
    limited._until = 0.0
    assert turns.count(limited, at) == 0
    count(at)
    assert figures.series("day").total.turns == 19


def test_minutes_without_turns_cost_no_statements(acme: Tenant) -> None:
    session, at = make_session(acme), now()
    ended(session, at - timedelta(hours=20))
    ended(session, at)
    with CaptureQueriesContext(connection) as captured:
        count(at)
    assert len(captured) < 60
    assert figures.series("day").total.turns == 2


def test_turns_of_sessions_that_are_deleted_meanwhile_stay_counted(acme: Tenant) -> None:
    session = make_session(acme)
    turn = ended(session, now() - timedelta(seconds=30))
    count()
    turn.delete()
    count()
    assert figures.series("hour").total.turns == 1


def test_a_bucket_has_a_limited_number_of_rows_and_its_sum_is_complete(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_A_MINUTE", 6)
    at = now() - timedelta(minutes=5)
    for number in range(20):
        session = make_session(acme, agent_name=f"agent{number}")
        for _ in range(2 if number == 7 else 1):
            ended(session, at)
    count()
    rows = TurnFigures.objects.filter(width=MINUTE)
    assert rows.count() <= 7
    assert figures.series("hour").total.turns == 21
    assert figures.series("hour", tenants=[acme.pk]).total.turns == 21
    assert figures.busiest("hour", "agent", 1)[0] == figures.Busy("agent7", 2, 0)


def test_hours_are_the_sums_of_their_minutes(acme: Tenant) -> None:
    session, start = make_session(acme), marks.start_of(now(), HOUR) - timedelta(hours=2)
    for minute in (1, 1, 20, 59):
        ended(session, start + timedelta(minutes=minute, seconds=10))
    count()
    assert TurnFigures.objects.get(width=HOUR, at=start, tenant_id=0).turns == 4
    assert figures.series("week").total.turns == 4


def used(tenant: Tenant, at: datetime, tokens: int, cost: int | None = None, **given: Any) -> None:
    fields = {"day": at.date(), "session": "s1", "key_id": 7, "agent": "demo", "model": "openai-chat:m", "purpose": "turn"}
    row, _ = ModelUse.objects.get_or_create(
        tenant_id=tenant.pk,
        **{**fields, **given},
        defaults={"calls": 0, "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0},
    )
    row.calls += 1
    row.input_tokens += tokens
    row.output_tokens += 1
    row.cost_nano = None if cost is None else (row.cost_nano or 0) + cost
    row.save()


def test_tokens_and_cost_are_counted_in_the_minute_in_which_they_were_used(acme: Tenant) -> None:
    at = datetime(2026, 3, 1, 10, 0, 30, tzinfo=UTC)
    Tenant.objects.update(created_at=at - timedelta(days=1))
    used(acme, at, 1000)
    use.count(at)
    assert not UseFigures.objects.exists(), "what was used before the first round belongs to no minute"
    used(acme, at, 10, cost=5)
    used(acme, at, 20, cost=7, session="s2")
    use.count(at + timedelta(minutes=1))
    use.count(at + timedelta(minutes=1))
    used(acme, at, 100, cost=1)
    use.count(at + timedelta(minutes=2))
    minutes = UseFigures.objects.filter(width=MINUTE, tenant_id=acme.pk).order_by("at")
    assert [(row.input_tokens, row.calls, row.cost_nano) for row in minutes] == [(30, 2, 12), (100, 1, 1)]
    assert UseFigures.objects.get(width=HOUR, tenant_id=0).input_tokens == 130


def test_the_first_use_of_a_new_installation_is_counted_at_once(acme: Tenant) -> None:
    now = live_workers.database_clock()
    Tenant.objects.update(created_at=now)
    used(acme, now, 10)
    use.count(now)
    assert UseFigures.objects.get(width=MINUTE, tenant_id=acme.pk).input_tokens == 10


def test_the_first_use_of_a_day_and_late_use_of_the_day_before_are_counted(acme: Tenant) -> None:
    night = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)
    use.count(night)
    used(acme, night, 10)
    used(acme, night + timedelta(minutes=1), 5)
    use.count(night + timedelta(minutes=1))
    assert UseFigures.objects.get(width=MINUTE, tenant_id=0).input_tokens == 15


def test_more_combinations_than_the_limit_are_summed_and_nothing_is_lost(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "MOST_A_DAY", 3)
    at = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
    use.count(at)
    for turn in range(2):
        for number in range(8):
            used(acme, at, 10, agent=f"agent{number}")
        use.count(at + timedelta(minutes=1 + turn))
    totals = UseFigures.objects.filter(width=MINUTE, tenant_id=0).order_by("at")
    assert [row.input_tokens for row in totals] == [80, 80]
    assert UseFigures.objects.filter(width=MINUTE).exclude(tenant_id=0).count() <= 8


def test_samples_show_the_queue_and_the_database(acme: Tenant) -> None:
    make_turn(make_session(acme), TurnState.QUEUED, queued_at=now() - timedelta(seconds=40))
    make_turn(make_session(acme), TurnState.WAITING)
    at = now()
    server.record(at)
    server.record(at)
    series = figures.series("hour")
    point = series.points[-1] if series.points[-1].samples else series.points[-2]
    assert series.sampled
    assert (point.mean("queued"), point.mean("waiting")) == (1.0, 1.0)
    assert (point.greatest("queue_wait") or 0) >= 39
    assert (point.greatest("database_seconds") or 0) > 0
    assert ("connections" in point.samples) == (connection.vendor == "postgresql")


def test_old_figures_are_deleted(acme: Tenant) -> None:
    for width, kept in ((MINUTE, figures.MINUTES_KEPT), (HOUR, figures.HOURS_KEPT)):
        for age in (kept - timedelta(hours=1), kept + timedelta(hours=1)):
            ServerFigures.objects.create(width=width, at=now() - age, gauges="{}")
    figures.keep(20.0)
    assert ServerFigures.objects.filter(gauges="{}").count() == 2


def test_housekeeping_keeps_the_figures(acme: Tenant) -> None:
    ended(make_session(acme), now() - timedelta(minutes=1))
    # An hour of minutes is counted in one round also on a slow machine.
    marks.write("turns", now() - timedelta(hours=1))
    housekeeping.run()
    assert figures.series("hour").total.turns == 1
    assert figures.series("hour").sampled


def test_the_busiest_tenants_and_failing_agents_come_first(acme: Tenant) -> None:
    other = make_tenant("globex")
    at = now() - timedelta(minutes=5)
    for _ in range(3):
        ended(make_session(other, agent_name="broken"), at, state=TurnState.ERROR)
    ended(make_session(acme, agent_name="fine"), at)
    count()
    assert [busy.name for busy in figures.busiest("hour", "tenant_id", 5)] == [other.pk, acme.pk]
    assert figures.busiest("hour", "agent", 5, failing=True) == [figures.Busy("broken", 3, 3)]
    assert figures.busiest("hour", "agent", 5, [acme.pk]) == [figures.Busy("fine", 1, 0)]


def test_ended_turns_are_found_by_their_index(acme: Tenant) -> None:
    session = make_session(acme)
    # The figures of an empty table would let a plan take any index.
    turn = ended(session, now() - timedelta(days=1))
    Turn.objects.bulk_create(
        Turn(
            **{field.attname: getattr(turn, field.attname) for field in Turn._meta.concrete_fields if field.attname != "id"}
            | {"public_id": f"turn_{number}", "ended_at": turn.ended_at - timedelta(hours=number)}  # type: ignore[operator]
        )
        for number in range(1, 1001)
    )
    hours = [(number, now() - timedelta(hours=number)) for number in range(1, 1001)]
    TurnAttempt.objects.bulk_create(
        TurnAttempt(tenant=acme, session=session, turn=turn, number=number, place=0, run=1, error="", ended_at=at)
        for number, at in hours
    )
    kinds = ["turn_started" if number % 50 == 0 else "step_done" for number in range(2000)]
    Event.objects.bulk_create(
        Event(tenant_id=acme.pk, seq=number, session_id=session.pk, kind=kind, data="{}")
        for number, kind in enumerate(kinds, 100_000)
    )
    with connection.cursor() as cursor:
        for table in ("sessions_app_turn", "sessions_app_turnattempt", "event"):
            cursor.execute(f"analyze {table}")
        if connection.vendor == "postgresql":
            cursor.execute("set enable_seqscan = off")
        explain = "explain " if connection.vendor == "postgresql" else "explain query plan "
        cursor.execute(explain + turns._ENDED, [turns._time(now())] * 4)
        plan = " ".join(str(row) for row in cursor.fetchall())
        if connection.vendor == "postgresql":
            cursor.execute("reset enable_seqscan")
    assert "turn_ended" in plan, plan
    assert "attempt_ended" in plan, plan
    assert "_run_start" in plan, plan
