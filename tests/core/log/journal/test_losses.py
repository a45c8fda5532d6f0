"""Lost connections and a crashed database: nothing is lost that was said, nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from django.db import connection

from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.postgres import LEAP
from sessions_app.core.log.journal.postgres_store import PostgresStore
from sessions_app.core.log.journal.types import Event, Gap, NewEvent

from .conftest import WAIT, Announced, InLoop, Run, World

MakeRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def _postgres_alone(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no connection to lose, and no era")


def sql(text: str, *params: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, params)


def store_of(writer: InLoop) -> PostgresStore:
    store = writer.writer._store
    assert isinstance(store, PostgresStore)
    return store


def backend_of(writer: InLoop) -> int:
    backend = store_of(writer)._backend
    assert backend is not None
    return int(backend[0])


def end_backend(pid: int) -> None:
    sql("select pg_terminate_backend(%s)", pid)


def crash() -> None:
    """What crash recovery does to the era. (The rows that it may lose, a test takes away itself.)"""
    sql("delete from journal_era")


def announced_of(announced: Announced, session: int) -> list[Event]:
    return [event for each in announced.all for item in each.items if item.session == session for event in item.events]


# --- a lost connection ---


def test_a_writer_whose_idle_connection_was_lost_goes_on(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    assert writer.submit(run.commit(1)) == ["stored"]
    end_backend(backend_of(writer))
    assert writer.submit(run.delta("a"), run.commit(2)) == ["stored", "stored"]
    assert run.said == [("step_done", "1"), ("text_delta", "a"), ("step_done", "2")]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["deltas", "commit point", "rows alone"])
def test_a_connection_lost_in_mid_flush_neither_loses_nor_repeats(
    writer: InLoop,
    make_run: MakeRun,
    announced: Announced,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    what: str,
) -> None:
    """The backend ends just before, or just after, it has committed; either way its answer never comes."""
    run, other = make_run(), make_run()
    assert writer.submit(run.delta("one"), run.commit(1), other.delta("uno")) == ["stored"] * 3
    store = store_of(writer)
    real = store._written
    broken = False

    def lose_the_answer(*args: object) -> object:
        nonlocal broken
        if not broken:
            broken = True
            store._connection.pgconn.finish()  # type: ignore[union-attr]
            raise ConnectionError
        return real(*args)  # type: ignore[arg-type]

    if when == "after":
        monkeypatch.setattr(store, "_written", lose_the_answer)
    counted = Statement("update sessions_app_turn set input_tokens = input_tokens + 1 where id = %s", (run.turn,))
    unit = run.delta("two") if what == "deltas" else run.commit(2, counted)
    if what == "rows alone":
        unit.happenings = []
    if when == "before":
        units = [unit, other.delta("dos")]
        unit.statements = [*unit.statements, Statement("select pg_sleep(0.5)")] if unit.statements else ()
        pid = backend_of(writer)
        answers = writer.begin_submit(*units)
        end_backend(pid)
        outcomes = [answer.result(WAIT) for answer in answers]
    else:
        outcomes = writer.submit(unit, other.delta("dos"))  # type: ignore[assignment]
    assert outcomes == ["stored", "stored"]
    assert broken == (when == "after")
    assert writer.submit(run.delta("three"), run.commit(3)) == ["stored", "stored"]
    middle = {"deltas": [("text_delta", "two")], "commit point": [("step_done", "2")], "rows alone": []}[what]
    end = [("text_delta", "three"), ("step_done", "3")]
    assert run.said == [("text_delta", "one"), ("step_done", "1"), *middle, *end]
    if what != "deltas":
        with connection.cursor() as cursor:
            cursor.execute("select input_tokens from sessions_app_turn where id = %s", (run.turn,))
            assert cursor.fetchone() == (1,)
    assert other.said == [("text_delta", "uno"), ("text_delta", "dos")]
    if unit.happenings:
        assert unit.stored[0].prev == 3
    stored = journal.read_session(run.tenant, run.session, 0).events[1:]
    announced.wait(lambda: len(announced_of(announced, run.session)) >= len(stored) + 1)
    assert announced_of(announced, run.session)[1:] == stored


def test_rows_alone_are_stored_once_if_the_connection_is_lost_before_their_commit(writer: InLoop, make_run: MakeRun) -> None:
    """No event shows afterwards whether they were stored, so the transaction's number has to be known."""
    run = make_run()
    counted = Statement("update sessions_app_turn set input_tokens = input_tokens + 1 where id = %s", (run.turn,))
    unit = run.commit(1, counted, Statement("select pg_sleep(0.5)"))
    unit.happenings = []
    pid = backend_of(writer)
    (answer,) = writer.begin_submit(unit)
    end_backend(pid)
    assert answer.result(WAIT) == "stored"
    with connection.cursor() as cursor:
        cursor.execute("select input_tokens, step from sessions_app_turn where id = %s", (run.turn,))
        assert cursor.fetchone() == (1, 1)


# --- a crash ---


def test_after_a_crash_numbers_go_on_beyond_whatever_was_shown(world: World, announced: Announced) -> None:
    tenant, other = world.tenant(), world.tenant()
    session = world.session(tenant)
    assert [world.append(tenant, session) for _ in range(3)] == [1, 2, 3]
    crash()
    announced.lists.clear()
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, session, Happening(Kind.SESSION_CREATED, {})))
    assert (tx.stored[0].seq, tx.stored[0].prev) == (LEAP + 1, 3)
    assert (announced.all[0].before, announced.all[0].upto) == (3, LEAP + 1)
    assert journal.gaps(tenant, 0) == [Gap(3, LEAP)]
    assert journal.gaps(other, 0) == []
    assert world.append(tenant, session) == LEAP + 2
    assert [event.seq for event in journal.read_session(tenant, session, 3).events] == [LEAP + 1, LEAP + 2]
    for shown_and_lost in (4, 5000):
        with pytest.raises(PositionPruned):
            journal.read_session(tenant, session, shown_and_lost)
    crash()
    assert world.append(tenant, session) == 2 * LEAP + 1


def test_a_new_tenant_after_a_crash_begins_with_one(world: World) -> None:
    crash()
    tenant = world.tenant()
    assert world.append(tenant, None) == 1
    assert journal.gaps(tenant, 0) == []


@pytest.mark.parametrize("connection_lost", [False, True])
def test_a_run_that_survived_a_crash_goes_on_beyond_the_gap(writer: InLoop, make_run: MakeRun, connection_lost: bool) -> None:
    run = make_run()
    assert writer.submit(run.delta("a"), run.commit(1)) == ["stored", "stored"]
    crash()
    if connection_lost:
        end_backend(backend_of(writer))
    assert writer.submit(run.delta("b"), run.commit(2)) == ["stored", "stored"]
    assert run.said == [("text_delta", "a"), ("step_done", "1"), ("text_delta", "b"), ("step_done", "2")]
    assert [event.seq for event in journal.read_session(run.tenant, run.session, 3).events] == [LEAP + 1, LEAP + 2]


@pytest.mark.parametrize("connection_lost", [False, True])
def test_a_run_stores_its_lost_deltas_again_before_what_follows(
    writer: InLoop, make_run: MakeRun, announced: Announced, connection_lost: bool
) -> None:
    run = make_run()
    assert writer.submit(run.commit(1)) == ["stored"]
    # Keep the barrier away, as if the crash came before it.
    real, held = store_of(writer).barrier, []

    async def no_barrier_yet() -> int | None:
        held.append(True)
        return await real() if lost else -1

    lost = False
    store_of(writer).barrier = no_barrier_yet  # type: ignore[method-assign]
    assert writer.submit(run.delta("lost ", None)) == ["stored"]
    assert writer.submit(run.delta("words ", None)) == ["stored"]
    # The crash: what was not on disk is gone, the counter and the tail fall back.
    sql("delete from event where session_id = %s and seq > 2", run.session)
    sql("update session_tail set seq = 2, prev = 1 where session_id = %s", run.session)
    sql("update tenant_counter set seq = 2 where tenant_id = %s", run.tenant)
    crash()
    if connection_lost:
        end_backend(backend_of(writer))
    lost = True
    assert writer.submit(run.delta("and more", None), run.commit(2)) == ["stored", "stored"]
    assert run.said == [
        ("step_done", "1"),
        ("text_delta", "lost "),
        ("text_delta", "words "),
        ("text_delta", "and more"),
        ("step_done", "2"),
    ]
    assert [event.seq for event in journal.read_session(run.tenant, run.session, 2).events] == [LEAP + n for n in (1, 2, 3, 4)]


def test_a_commit_point_that_a_crash_took_is_stored_again_before_it_is_answered(
    writer: InLoop, make_run: MakeRun, announced: Announced
) -> None:
    run = make_run()
    store = store_of(writer)
    real = store.barrier
    crashed = False

    async def crash_before_the_barrier() -> int | None:
        nonlocal crashed
        if not crashed:
            crashed = True
            await asyncio.to_thread(lose)
        return await real()

    def lose() -> None:
        sql("delete from event where session_id = %s and seq > 1", run.session)
        sql("update session_tail set seq = 1, prev = 0 where session_id = %s", run.session)
        sql("update tenant_counter set seq = 1 where tenant_id = %s", run.tenant)
        sql("update sessions_app_turn set step = 0 where id = %s", run.turn)
        crash()
        end_backend(backend_of(writer))
        connection.close()

    store.barrier = crash_before_the_barrier  # type: ignore[method-assign]
    announced.lists.clear()
    unit = run.commit(7)
    assert writer.submit(unit) == ["stored"]
    assert crashed
    assert run.step == 7
    assert run.said == [("step_done", "7")]
    assert unit.stored[0].seq == LEAP + 1
    assert [event.seq for event in announced_of(announced, run.session)] == [LEAP + 1]


def test_rows_alone_whose_transaction_a_crash_took_are_stored_again(writer: InLoop, make_run: MakeRun) -> None:
    """Their transaction's number is one that the database, back from the crash, has not given out yet."""
    run = make_run()
    store = store_of(writer)
    real, asked = store.barrier, []

    async def crash_before_the_barrier() -> int | None:
        asked.append(True)
        if len(asked) == 1:
            (record,) = writer.writer._unconfirmed
            record.written.transaction = str(int(record.written.transaction) + 1_000_000_000)
            await asyncio.to_thread(lose)
        return await real()

    def lose() -> None:
        sql("update sessions_app_turn set step = 0 where id = %s", run.turn)
        crash()
        end_backend(backend_of(writer))
        connection.close()

    store.barrier = crash_before_the_barrier  # type: ignore[method-assign]
    unit = run.commit(4)
    unit.happenings = []
    assert writer.submit(unit) == ["stored"]
    assert run.step == 4
