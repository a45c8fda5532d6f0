"""Reading the journal: by session, by tenant, from a position, in one moment."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from sessions_app.core.base.errors import NotReady, PositionPruned
from sessions_app.core.base.events import Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal import barriers, reading
from sessions_app.core.log.journal.types import Gap
from sessions_app.models import JournalGap, Tenant, TenantCounter

from .conftest import WAIT, World


def test_a_session_is_read_from_a_position_in_pages(world: World) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    for _ in range(3):
        world.append(tenant, session)
        world.append(tenant, other)
    page = journal.read_session(tenant, session, 0, limit=2)
    assert ([event.seq for event in page.events], page.counter, page.more) == ([1, 3], 6, True)
    page = journal.read_session(tenant, session, 3, limit=2)
    assert ([event.seq for event in page.events], page.counter, page.more) == ([5], 6, False)
    assert journal.read_session(tenant, session, 6).events == []


def test_a_tenant_is_read_from_a_position_in_pages(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    for each in (session, None, session):
        world.append(tenant, each)
    page = journal.read_tenant(tenant, 0, limit=2)
    assert ([(event.seq, event.session) for event in page.events], page.upto, page.more) == (
        [(1, session), (2, -tenant)],
        2,
        True,
    )
    page = journal.read_tenant(tenant, 2, limit=2)
    assert ([event.seq for event in page.events], page.upto, page.more) == ([3], 3, False)
    assert (journal.read_tenant(tenant, 3).upto, journal.read_tenant(tenant, 3).more) == (3, False)


def test_a_read_ends_where_its_bytes_do_and_the_next_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the events are, what a process holds of them at once is bounded; one event comes in any case."""
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    tenant = world.tenant()
    session = world.session(tenant)
    for size in (600, 600, 5000, 10, 10):
        world.append(tenant, session, text="é" * (size // 2))
    seen: list[list[int]] = []
    after, more = 0, True
    while more:
        page = journal.read_session(tenant, session, after)
        several = journal.read_several(tenant, [session], after, 1000, 1000)
        everything = journal.read_tenant(tenant, after)
        seqs = [event.seq for event in page.events]
        assert [event.seq for event in several.events] == [event.seq for event in everything.events] == seqs
        assert several.more == everything.more == page.more
        more = page.more
        if seqs:
            seen.append(seqs)
            after = seqs[-1]
            assert everything.upto == after
    assert seen == [[1, 2], [3], [4, 5]]


def test_another_tenants_session_reads_as_empty(world: World) -> None:
    tenant, stranger = world.tenant(), world.tenant()
    session = world.session(tenant)
    seq = world.append(tenant, session)
    assert journal.read_session(stranger, session, 0).events == []
    assert not journal.knows_position(stranger, session, seq)


def test_a_position_is_known_only_to_its_session(world: World) -> None:
    tenant = world.tenant()
    session, other = world.session(tenant), world.session(tenant)
    seq = world.append(tenant, session)
    assert journal.knows_position(tenant, session, seq)
    assert not journal.knows_position(tenant, other, seq)
    assert not journal.knows_position(tenant, session, seq + 1)


def test_a_position_inside_a_gap_was_lost_and_one_at_its_edges_was_not(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    world.append(tenant, session)
    JournalGap.objects.create(tenant_id=tenant, after=1, upto=100)
    assert journal.gaps(tenant, 0) == journal.gaps(tenant, 99) == [Gap(1, 100)]
    assert journal.gaps(tenant, 100) == []
    assert journal.read_session(tenant, session, 1).events == []
    for lost in (2, 50, 100):
        with pytest.raises(PositionPruned):
            journal.read_session(tenant, session, lost)
        with pytest.raises(PositionPruned):
            journal.knows_position(tenant, session, lost)


def test_a_number_that_a_crash_took_was_lost_before_anything_new_is_appended(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    for _ in range(3):
        world.append(tenant, session)
    TenantCounter.objects.filter(tenant_id=tenant).update(seq=2)
    assert journal.read_session(tenant, session, 2).counter == 2
    with pytest.raises(PositionPruned):
        journal.read_session(tenant, session, 3)


def test_the_latest_start_of_a_run_is_what_its_clients_saw_start(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    assert journal.latest_run_start(session) is None
    world.append(tenant, session, Kind.TURN_STARTED)
    world.append(tenant, session, Kind.RUN_STARTED)
    assert journal.latest_run_start(session) == 1
    world.append(tenant, session, Kind.TURN_RESUMED)
    world.append(tenant, session, Kind.TEXT_DONE)
    assert journal.latest_run_start(session) == 3


def test_the_open_step_begins_with_the_newest_step(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    assert journal.open_step(session) == []
    for kind in (Kind.TURN_STARTED, Kind.STEP_STARTED, Kind.TEXT_DELTA, Kind.STEP_DONE, Kind.STEP_STARTED, Kind.TEXT_DELTA):
        world.append(tenant, session, kind)
    assert [event.seq for event in journal.open_step(session)] == [5, 6]


def test_counters_are_read_for_many_tenants(world: World) -> None:
    one, other = world.tenant(), world.tenant()
    world.append(one, None)
    assert journal.counters([one, other, 10**12]) == {one: 1, other: 0}
    assert journal.counters([]) == {}


def test_a_snapshot_sees_one_moment_and_stops_no_writer(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    world.append(tenant, session)

    def write() -> None:
        world.append(tenant, session)
        Tenant.objects.filter(pk=tenant).update(title="changed")
        connection.close()

    with journal.snapshot():
        assert len(journal.read_session(tenant, session, 0).events) == 1
        writes = threading.Thread(target=write)
        writes.start()
        writes.join(WAIT)
        assert not writes.is_alive()
        assert len(journal.read_session(tenant, session, 0).events) == 1
        assert Tenant.objects.get(pk=tenant).title == ""
    assert len(journal.read_session(tenant, session, 0).events) == 2


def test_what_feeds_a_stream_waits_for_a_barrier(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    world.append(tenant, session)
    waited: list[int | None] = []
    monkeypatch.setattr(barriers, "wait", waited.append)
    journal.read_session(tenant, session, 0)
    journal.read_tenant(tenant, 0)
    assert len(waited) == 2
    assert all((era is not None) == (connection.vendor == "postgresql") for era in waited)


def test_a_barrier_in_another_era_vouches_for_nothing(world: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no eras")
    world.tenant()
    with pytest.raises(NotReady):
        barriers.wait(1)


def test_the_barrier_connects_again_when_its_connection_was_lost(world: World, on_postgres: bool) -> None:
    journal.barrier()
    if on_postgres:
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = current_database() and query like %s and pid <> pg_backend_pid()",
                ("select pg_logical_emit_message%",),
            )
            # Connections of earlier tests may be among them.
            assert cursor.fetchone()[0] >= 1
    journal.barrier()


async def test_a_loop_waits_for_the_same_barrier(transactional_db: None) -> None:
    await journal.barrier_async()
