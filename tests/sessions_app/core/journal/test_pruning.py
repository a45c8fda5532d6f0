"""What is old goes, and whoever reads from before it is told."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from sessions_app.core import journal
from sessions_app.core.errors import PositionPruned
from sessions_app.core.events import Kind
from sessions_app.core.journal import pruning
from sessions_app.models import Event, Pruned, SessionTail, Turn

from .conftest import World

NOW = timezone.now()
DAY, MONTH = timedelta(days=1), timedelta(days=30)


@pytest.fixture(autouse=True)
def _keep_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "KEPT", 2)


def age(by: timedelta, *, session: int | None = None) -> None:
    events = Event.objects.all() if session is None else Event.objects.filter(session_id=session)
    events.update(at=NOW - by)


def prune(now: datetime = NOW, batch: int = 2) -> int:
    return journal.prune(now - DAY, now - MONTH, batch)


def kinds(session: int) -> list[str]:
    return list(Event.objects.filter(session_id=session).order_by("seq").values_list("kind", flat=True))


def say(world: World, tenant: int, session: int) -> None:
    for kind in (Kind.TURN_STARTED, Kind.TEXT_DELTA, Kind.TEXT_DELTA, Kind.TEXT_DELTA, Kind.TEXT_DONE, Kind.TURN_ENDED):
        world.append(tenant, session, kind, delta="x")


def test_deltas_go_after_a_day_and_the_rest_after_a_month(world: World) -> None:
    tenant = world.tenant()
    first, second = world.session(tenant), world.session(tenant)
    say(world, tenant, first)
    say(world, tenant, second)
    assert prune() == 0
    age(DAY * 2)
    assert prune() == 6
    assert kinds(first) == kinds(second) == ["turn_started", "text_done", "turn_ended"]
    assert prune() == 0
    age(MONTH * 2)
    assert prune() == 4
    assert kinds(first) == []
    assert kinds(second) == ["text_done", "turn_ended"]


def test_a_tenants_newest_events_stay_however_old(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    for _ in range(4):
        world.append(tenant, session, Kind.TEXT_DELTA, delta="x")
    age(MONTH * 2)
    assert prune() == 2
    assert [event.seq for event in journal.read_tenant(tenant, 0).events] == [3, 4]


@pytest.mark.parametrize("state", ["queued", "running", "waiting"])
def test_the_events_of_a_live_turn_stay_however_old(world: World, state: str) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    say(world, tenant, session)
    turn = world.turn(tenant, session)
    for kind in (Kind.TURN_STARTED, Kind.TEXT_DELTA, Kind.RUN_PAUSED, Kind.TURN_RESUMED, Kind.TEXT_DELTA):
        world.append(tenant, session, kind)
    for _ in range(2):
        world.append(tenant, other)
    Turn.objects.filter(pk=turn).update(state=state)
    age(MONTH * 2)
    prune()
    assert kinds(session) == ["turn_started", "text_delta", "run_paused", "turn_resumed", "text_delta"]
    Turn.objects.filter(pk=turn).update(state="done")
    prune()
    assert kinds(session) == []


def test_a_reader_from_before_what_was_pruned_is_told_and_one_from_after_reads_on(world: World) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    say(world, tenant, session)
    for _ in range(3):
        world.append(tenant, other)
    age(DAY * 2)
    prune()
    for after in (0, 3):
        with pytest.raises(PositionPruned):
            journal.read_session(tenant, session, after)
    assert [event.kind for event in journal.read_session(tenant, session, 4).events] == ["text_done", "turn_ended"]
    assert len(journal.read_session(tenant, other, 0).events) == 3
    with pytest.raises(PositionPruned):
        journal.knows_position(tenant, session, 2)
    assert journal.knows_position(tenant, session, 4)
    assert journal.knows_position(tenant, session, 5)


def test_recent_events_of_one_tenant_are_not_touched_by_anothers_age(world: World) -> None:
    old, young = world.tenant(), world.tenant()
    for tenant in (old, young):
        for _ in range(5):
            world.append(tenant, None, Kind.TEXT_DELTA)
    age(DAY * 2, session=-old)
    assert prune() == 3
    assert len(journal.read_tenant(young, 0).events) == 5


def test_a_forgotten_session_leaves_nothing_in_the_journal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "_FORGET_BATCH", 2)
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    say(world, tenant, session)
    say(world, tenant, other)
    Pruned.objects.create(session_id=session, through=1)
    journal.forget_session(session)
    assert kinds(session) == []
    # A reader that was still behind is told, and does not wait for what cannot come.
    with pytest.raises(PositionPruned):
        journal.read_session(tenant, session, 10_000)
    assert not SessionTail.objects.filter(session_id=session).exists()
    assert not Pruned.objects.filter(session_id=session).exists()
    assert len(kinds(other)) == 6
