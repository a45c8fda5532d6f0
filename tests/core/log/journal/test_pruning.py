"""What is old goes, and whoever reads from before it is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import Kind
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import journal
from sessions_app.core.log.journal import marks, pruning
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


_SAID = (Kind.TURN_STARTED, Kind.TEXT_DELTA, Kind.TEXT_DELTA, Kind.TEXT_DELTA, Kind.TEXT_DONE, Kind.TURN_ENDED)


def say(world: World, tenant: int, session: int) -> None:
    for kind in _SAID:
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


def with_skipped_deltas(world: World, tenant: int, session: int, other: int) -> int:
    """A turn that waits for its client for days, while younger deltas of its tenant are pruned."""
    turn = world.turn(tenant, session)
    say(world, tenant, session)
    Turn.objects.filter(pk=turn).update(state="waiting")
    say(world, tenant, other)
    say(world, tenant, other)
    age(DAY * 2)
    assert prune() > 0
    assert kinds(session)[-6:] == list(_SAID)
    return turn


def test_the_deltas_of_a_turn_that_lived_long_go_with_the_first_round_after_its_end(world: World) -> None:
    tenant = world.tenant()
    long, short = world.session(tenant), world.session(tenant)
    turn = with_skipped_deltas(world, tenant, long, short)
    assert prune() == 0
    Turn.objects.filter(pk=turn).update(state="done")
    assert prune() == 3
    assert kinds(long) == ["run_started", "turn_started", "text_done", "turn_ended"]
    with pytest.raises(PositionPruned):
        journal.read_session(tenant, long, 1)
    assert not Pruned.objects.filter(session_id__lt=-(1 << 61), session_id__gt=-(1 << 62)).exists()
    assert prune() == 0


def test_a_turn_that_began_later_keeps_no_deltas_of_the_turn_before(world: World) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    first = with_skipped_deltas(world, tenant, session, other)
    Turn.objects.filter(pk=first).update(state="done")
    second = with_skipped_deltas(world, tenant, session, other)
    assert kinds(session) == ["run_started", "turn_started", "text_done", "turn_ended", "run_started", *_SAID]
    Turn.objects.filter(pk=second).update(state="done")
    prune()
    assert kinds(session).count("text_delta") == 0


def test_a_forgotten_session_leaves_no_mark_of_skipped_deltas(world: World) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    with_skipped_deltas(world, tenant, session, other)
    journal.forget_session(session)
    assert set(Pruned.objects.values_list("session_id", flat=True)) == {other, marks.tenant_mark(tenant)}


def test_a_tenant_whose_events_cannot_be_deleted_keeps_no_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = [world.tenant() for _ in range(3)]
    sessions = [world.session(tenant) for tenant in tenants]
    for tenant, session in zip(tenants, sessions, strict=True):
        say(world, tenant, session)
    age(DAY * 2)
    original = pruning._delete

    def delete(cursor: Any, tenant: int, numbers: Sequence[int]) -> None:
        if tenant == tenants[1]:
            raise ValueError("a row that cannot be deleted")
        original(cursor, tenant, numbers)

    monkeypatch.setattr(pruning, "_delete", delete)
    this = Round(60)
    assert journal.prune(NOW - DAY, NOW - MONTH, 2, this) == 6
    assert (type(this.error), this.failed_row) == (ValueError, tenants[1])
    assert [kinds(session).count("text_delta") for session in sessions] == [0, 3, 0]


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
