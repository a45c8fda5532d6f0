"""Stream events go by whole partitions, and nothing that must stay goes with them."""

from __future__ import annotations

import logging
from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import Kind
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import journal
from sessions_app.core.log.journal import partitions, pruning
from sessions_app.core.log.journal.marks import tenant_mark
from sessions_app.models import Event, EventPartition, Pruned, Turn

from .conftest import World

pytestmark = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only Postgres has partitions")

BEGIN = timezone.now()
DAY, MONTH, HALF, MINUTE = timedelta(days=1), timedelta(days=30), timedelta(hours=12), timedelta(minutes=1)
SAID = (Kind.TURN_STARTED, Kind.TEXT_DELTA, Kind.TEXT_DELTA, Kind.TEXT_DONE, Kind.TURN_ENDED)


@pytest.fixture(autouse=True)
def _keep_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "KEPT", 2)


def round_at(after: timedelta, this: Round | None = None) -> int:
    return journal.empty_partitions(BEGIN + after, DAY, this)


def say(world: World, tenant: int, session: int) -> None:
    for kind in SAID:
        world.append(tenant, session, kind, delta="x")


def in_partitions(session: int) -> list[tuple[str, int]]:
    return list(Event.objects.filter(session_id=session).order_by("seq").values_list("kind", "partition"))


def in_use() -> dict[int, bool]:
    return dict(EventPartition.objects.order_by("number").values_list("number", "is_open"))


@pytest.fixture
def tenant(world: World) -> int:
    """Its newest events are of another session than those of the tests."""
    return world.tenant()


def finish(world: World, tenant: int) -> None:
    """Two later numbers, which no pruning takes."""
    other = world.session(tenant)
    for _ in range(2):
        world.append(tenant, other)


def test_stream_events_go_into_the_open_partition_and_all_others_stay_apart(world: World, tenant: int) -> None:
    session = world.session(tenant)
    world.append(tenant, session, Kind.TEXT_DELTA)
    round_at(timedelta(0))
    say(world, tenant, session)
    round_at(HALF)
    world.append(tenant, session, Kind.THINKING_DELTA)
    assert in_partitions(session) == [
        ("text_delta", 0),
        ("turn_started", 0),
        ("text_delta", 1),
        ("text_delta", 1),
        ("text_done", 0),
        ("turn_ended", 0),
        ("thinking_delta", 2),
    ]
    read = journal.read_session(tenant, session, 2)
    assert [event.seq for event in read.events] == [3, 4, 5, 6, 7]
    assert [event.seq for event in journal.read_tenant(tenant, 0, limit=4).events] == [1, 2, 3, 4]


def test_a_partition_is_emptied_when_all_of_it_is_old_and_then_used_again(world: World, tenant: int) -> None:
    session = world.session(tenant)
    round_at(timedelta(0))
    say(world, tenant, session)
    finish(world, tenant)
    seen = []
    for hours in range(13):
        round_at(HALF * hours)
        seen.append([number for number, is_open in in_use().items() if is_open])
        assert round_at(HALF * hours + 2 * MINUTE) == (1 if hours >= 3 else 0)
    assert seen == [[1 + hours % 4] for hours in range(13)]
    assert in_partitions(session) == [("turn_started", 0), ("text_done", 0), ("turn_ended", 0)]


def test_readers_are_refused_before_anything_is_gone(world: World, tenant: int) -> None:
    session = world.session(tenant)
    round_at(timedelta(0))
    say(world, tenant, session)
    finish(world, tenant)
    round_at(HALF)
    assert [event.seq for event in journal.read_session(tenant, session, 0).events] == [1, 2, 3, 4, 5]
    round_at(HALF + DAY)
    assert len(in_partitions(session)) == 5
    with pytest.raises(PositionPruned):
        journal.read_session(tenant, session, 2)
    assert [event.seq for event in journal.read_session(tenant, session, 3).events] == [4, 5]
    assert journal.knows_position(tenant, session, 3)
    # A transaction that began before that has a minute to end.
    assert round_at(HALF + DAY + MINUTE / 2) == 0
    assert len(in_partitions(session)) == 5
    assert round_at(HALF + DAY + MINUTE) == 1
    assert len(in_partitions(session)) == 3


def test_a_tenants_newest_events_stay_until_they_are_not_the_newest(world: World, tenant: int) -> None:
    session = world.session(tenant)
    round_at(timedelta(0))
    for _ in range(4):
        world.append(tenant, session, Kind.TEXT_DELTA)
    round_at(HALF)
    round_at(HALF + DAY)
    round_at(HALF + DAY + MINUTE)
    assert in_partitions(session) == [("text_delta", 0)] * 2
    assert [event.seq for event in journal.read_session(tenant, session, 2).events] == [3, 4]
    finish(world, tenant)
    Event.objects.update(at=BEGIN - 2 * DAY)
    assert journal.prune(BEGIN - DAY, BEGIN - MONTH, 10) == 2
    assert in_partitions(session) == []


@pytest.mark.parametrize("state", ["queued", "running", "waiting"])
def test_a_live_turns_stream_events_stay_and_go_after_its_end(world: World, tenant: int, state: str) -> None:
    session = world.session(tenant)
    turn = world.turn(tenant, session)
    round_at(timedelta(0))
    say(world, tenant, session)
    for kind in (Kind.TURN_STARTED, Kind.TEXT_DELTA, Kind.TEXT_DELTA):
        world.append(tenant, session, kind)
    finish(world, tenant)
    Turn.objects.filter(pk=turn).update(state=state)
    round_at(HALF)
    round_at(HALF + DAY)
    round_at(HALF + DAY + MINUTE)
    kept = [("run_started", 0), ("turn_started", 0), ("text_done", 0), ("turn_ended", 0)]
    assert in_partitions(session) == [*kept, ("turn_started", 0), ("text_delta", 0), ("text_delta", 0)]
    # Pruning by row has gone past them before they came.
    Pruned.objects.create(session_id=tenant_mark(tenant), through=100)
    Event.objects.update(at=BEGIN - 2 * DAY)
    assert journal.prune(BEGIN - DAY, BEGIN - MONTH, 10) == 0
    Turn.objects.filter(pk=turn).update(state="done")
    assert journal.prune(BEGIN - DAY, BEGIN - MONTH, 10) == 2
    assert in_partitions(session) == [*kept, ("turn_started", 0)]


def test_rounds_that_are_cut_short_go_on_where_they_were(world: World, tenant: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_SESSIONS_AT_ONCE", 1)
    sessions = [world.session(tenant) for _ in range(3)]
    round_at(timedelta(0))
    for session in sessions:
        say(world, tenant, session)
    finish(world, tenant)
    round_at(HALF)

    class Short(Round):
        """Over after the pages of tenants and of live turns, and one of sessions."""

        def __init__(self) -> None:
            super().__init__(60)
            self.left = 3

        @property
        def over(self) -> bool:
            self.left -= 1
            return self.left < 0

    for done in (1, 2, 3):
        round_at(HALF + DAY, Short())
        assert Pruned.objects.filter(session_id__in=sessions).count() == done
        assert not EventPartition.objects.filter(marked_at__isnull=False).exists()
    round_at(HALF + DAY)
    assert round_at(HALF + DAY + MINUTE) == 1
    assert all(len(in_partitions(session)) == 3 for session in sessions)


def test_a_reader_delays_the_emptying_and_nobody_waits_for_it(world: World, tenant: int) -> None:
    session = world.session(tenant)
    round_at(timedelta(0))
    say(world, tenant, session)
    finish(world, tenant)
    round_at(HALF)
    round_at(HALF + DAY)
    parameters = connection.get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "user", "password", "host", "port") if name in parameters}
    with psycopg.connect(**wanted) as reader:
        reader.execute("select count(*) from event")
        assert round_at(HALF + DAY + MINUTE) == 0
        world.append(tenant, session, Kind.TEXT_DELTA)
        # Nor does the next partition wait, for example for the end of a long backup.
        assert round_at(2 * DAY) == 0
        assert in_use()[4]
    assert round_at(2 * DAY) == 1


def test_if_no_partition_is_free_the_open_one_is_used_on(
    world: World, tenant: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_empty", lambda _: 0)
    for number in range(5):
        round_at(HALF * number)
    assert in_use() == {1: False, 2: False, 3: False, 4: True}
    assert [record.levelno for record in caplog.records if "event_partitions_all_in_use" in record.getMessage()] == [
        logging.WARNING
    ]
    session = world.session(tenant)
    world.append(tenant, session, Kind.TEXT_DELTA)
    assert in_partitions(session) == [("text_delta", 4)]


def test_a_release_that_knows_no_partitions_stores_and_deletes_by_row(world: World, tenant: int) -> None:
    session = world.session(tenant)
    round_at(timedelta(0))
    world.append(tenant, session, Kind.TEXT_DELTA)
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into event(tenant_id, seq, session_id, kind, data, fence) values (%s, 2, %s, 'text_delta', '{}', null)",
            (tenant, session),
        )
        assert in_partitions(session) == [("text_delta", 1), ("text_delta", 0)]
        cursor.execute("delete from event where tenant_id = %s and seq in (1, 2)", (tenant,))
    assert in_partitions(session) == []
