"""A worker's units: stored whole, in order, each once, whatever else is in the flush."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from sessions_app.core.base import raw_sql
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal import writer as writer_module
from sessions_app.core.log.journal.entries import READY
from sessions_app.core.log.journal.store import Locked, Written
from sessions_app.core.log.journal.types import Announcement, Event, Stored, Unit
from sessions_app.core.records import history
from sessions_app.core.records.history import StepRef
from sessions_app.models import Origin, Session, ToolCall, Turn

from .conftest import WAIT, Announced, InLoop, Run, World

MakeRun = Callable[..., Run]


def events_of(announcements: list[Announcement], session: int) -> list[Event]:
    return [event for each in announcements for item in each.items if item.session == session for event in item.events]


@contextmanager
def somebody_holds(sql: str, *params: int) -> Iterator[None]:
    """Another transaction, on a connection of its own, that has locked what ``sql`` selects."""
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(sql, params)
                holds.set()
                let_go.wait(WAIT)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(WAIT)
    try:
        yield
    finally:
        let_go.set()
        thread.join(WAIT)


# --- storing ---


def test_a_commit_point_stores_its_rows_and_its_events_together(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    unit = run.commit(3)
    assert writer.submit(unit) == ["stored"]
    assert run.step == 3
    assert unit.stored == [Stored(2, 1)]
    assert run.said == [("step_done", "3")]


def test_a_commit_point_without_events_is_stored_too(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    unit = run.commit(5)
    unit.happenings = []
    assert writer.submit(unit) == ["stored"]
    assert run.step == 5
    assert run.said == []


def test_units_of_a_session_are_stored_in_the_order_they_came(writer: InLoop, make_run: MakeRun) -> None:
    run, other = make_run(), make_run()
    units = []
    for step in range(1, 40):
        units += [run.delta(f"a{step}"), other.delta(f"b{step}"), run.commit(step), other.delta(f"c{step}")]
    assert set(writer.submit(*units)) == {"stored"}
    assert run.said == [each for step in range(1, 40) for each in [("text_delta", f"a{step}"), ("step_done", str(step))]]
    assert "".join(text for _, text in other.said) == "".join(f"b{step}c{step}" for step in range(1, 40))


def test_a_first_word_does_not_wait_for_company(
    writer: InLoop, make_run: MakeRun, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = make_run(), make_run()
    assert writer.submit(run.commit(1)) == ["stored"]
    monkeypatch.setattr(writer_module, "_SPACING", 10 * WAIT)
    writer.put(run.delta("later"))
    writer.put(other.delta("first", None))
    announced.wait(lambda: other.said == [("text_delta", "first")])
    assert run.said == [("step_done", "1"), ("text_delta", "later")]


def test_neighbouring_deltas_of_one_part_become_one_event(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    units = [run.delta("Hel"), run.delta("lo"), run.delta("!", "p2"), run.delta("?", None), run.delta("?", None)]
    assert set(writer.submit(*units)) == {"stored"}
    assert run.said == [("text_delta", "Hello"), ("text_delta", "!"), ("text_delta", "?"), ("text_delta", "?")]
    assert [unit.stored[0] for unit in units] == [Stored(2, 1), Stored(2, 1), Stored(3, 2), Stored(4, 3), Stored(5, 4)]


def test_what_opens_a_part_ends_the_pause_between_flushes_of_deltas(
    writer: InLoop, make_run: MakeRun, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_SPACING", 3600.0)
    run = make_run()
    writer.put(run.delta("the first comes at once"))
    announced.wait(lambda: len(run.said) == 1)
    writer.put(run.delta("more"), run.delta("another part", None))
    announced.wait(lambda: len(run.said) == 3)
    assert [text for _, text in run.said] == ["the first comes at once", "more", "another part"]


def test_after_a_large_flush_deltas_collect_for_longer(
    writer: InLoop, make_run: MakeRun, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_LONGEST_SPACING", 3600.0)
    monkeypatch.setattr(writer_module, "_UNITS_UNDER_LOAD", 3)
    monkeypatch.setattr(writer_module, "_SPACING", 0.0)
    runs, sizes = [make_run() for _ in range(3)], []
    store = writer.writer._store
    real = store.attempt

    async def attempt(units: Sequence[Unit], *args: Any, **kwargs: Any) -> Written:
        sizes.append(len(units))
        return await real(units, *args, **kwargs)

    monkeypatch.setattr(store, "attempt", attempt)
    writer.put(*(run.delta("a") for run in runs))
    announced.wait(lambda: all(len(run.said) == 1 for run in runs))
    # Without the pause each of these calls would be a flush of its own. Neighbouring deltas are one unit.
    for text in ("b", "c", "d"):
        writer.put(*(run.delta(text) for run in runs))
    writer.put(runs[0].delta("another part", None))
    announced.wait(lambda: len(runs[0].said) == 3)
    assert sizes == [3, 4]
    assert [text for _, text in runs[1].said] == ["a", "bcd"]


def test_each_event_names_the_number_of_its_sessions_event_before(
    writer: InLoop, make_run: MakeRun, announced: Announced, world: World
) -> None:
    tenant = world.tenant()
    runs = [make_run(tenant) for _ in range(3)]
    announced.lists.clear()
    for step in range(1, 8):
        writer.submit(*(unit for run in runs for unit in (run.delta(f"t{step}"), run.commit(step))))
    for run in runs:
        tail = journal.read_session(tenant, run.session, 0).events[0].seq
        for announcement in announced.all:
            for item in announcement.items:
                if item.session == run.session:
                    assert item.prev == tail
                    tail = item.events[-1].seq
        assert journal.tail(run.session).seq == tail


def test_times_in_statements_come_back_as_they_were(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    now = timezone.now()
    started = Statement("update sessions_app_turn set started_at = %s where id = %s", (now, run.turn))
    assert writer.submit(run.commit(1, started)) == ["stored"]
    assert Turn.objects.get(pk=run.turn).started_at == now
    ended = Statement("update sessions_app_turn set ended_at = %s where id = %s", (now, run.turn))
    with journal.transaction():
        raw_sql.execute([ended])
    assert Turn.objects.get(pk=run.turn).ended_at == now


# --- fences ---


def test_a_unit_with_an_old_fence_is_stale_and_leaves_no_trace(writer: InLoop, make_run: MakeRun, announced: Announced) -> None:
    run = make_run(fence=2)
    announced.lists.clear()
    before = journal.counters([run.tenant])
    assert writer.submit(run.as_fence(1).commit(9)) == ["stale"]
    assert writer.submit(run.as_fence(1).delta("x")) == ["stale"]
    assert run.step == 0
    assert run.said == []
    assert announced.all == []
    assert journal.counters([run.tenant]) == before


def test_a_unit_is_stale_if_only_its_turns_row_has_a_newer_fence(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    Turn.objects.filter(pk=run.turn).update(fence=run.fence + 1)
    assert writer.submit(run.commit(1)) == ["stale"]
    assert run.said == []


def test_a_put_delta_with_an_old_fence_is_reported(writer: InLoop, make_run: MakeRun, world: World) -> None:
    run = make_run(fence=2)
    writer.put(run.as_fence(1).delta("x"))
    writer.submit(run.commit(1))
    assert writer.stale == [run.turn]


def test_stale_units_do_not_stop_the_others_of_their_flush(writer: InLoop, make_run: MakeRun, world: World) -> None:
    tenant = world.tenant()
    run, taken = make_run(tenant), make_run(tenant, fence=2)
    old = taken.as_fence(1)
    units = [run.commit(1), old.delta("x"), old.commit(9), taken.delta("y"), run.delta("z"), taken.commit(2)]
    assert writer.submit(*units) == ["stored", "stale", "stale", "stored", "stored", "stored"]
    assert taken.said == [("text_delta", "y"), ("step_done", "2")]
    assert (run.step, taken.step) == (1, 2)


@pytest.mark.parametrize("state", ["done", "cancelled", "waiting", "queued"])
def test_a_commit_point_of_a_turn_that_is_not_running_is_stale(writer: InLoop, make_run: MakeRun, state: str) -> None:
    run = make_run()
    Turn.objects.filter(pk=run.turn).update(state=state)
    assert writer.submit(run.commit(4)) == ["stale"]
    assert run.step == 0


def test_a_commit_point_of_a_deleted_turn_is_stale(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    Turn.objects.filter(pk=run.turn).delete()
    assert writer.submit(run.commit(4)) == ["stale"]


def test_a_unit_without_a_tail_fails_by_itself(writer: InLoop, make_run: MakeRun, world: World) -> None:
    tenant = world.tenant()
    run, lost = make_run(tenant), make_run(tenant)
    with connection.cursor() as cursor:
        cursor.execute("delete from session_tail where session_id = %s", (lost.session,))
    stored, failed, after = writer.submit(run.commit(1), lost.commit(1), run.commit(2))
    assert (stored, after) == ("stored", "stored")
    assert isinstance(failed, journal.BadUnit)
    assert lost.step == 0


# --- waiting for a client ---


@pytest.mark.parametrize(
    ("calls", "outcome"),
    [
        ([("pending", False)], "stored"),
        ([("pending", False), ("done", True), ("denied", True)], "stored"),
        ([("pending", False), ("granted", False)], "answered"),
        ([("pending", False), ("denied", False)], "answered"),
        ([("pending", False), ("done", False)], "answered"),
        ([("done", True)], "answered"),
        ([], "answered"),
    ],
)
def test_a_turn_is_left_waiting_unless_a_client_has_answered(
    writer: InLoop, make_run: MakeRun, world: World, calls: list[tuple[str, bool]], outcome: str
) -> None:
    run, other = make_run(), make_run()
    for number, (state, stored) in enumerate(calls):
        world.call(run.turn, f"call_{number}", state, stored=stored)
    waiting = Statement("update sessions_app_turn set state = 'waiting' where id = %s", (run.turn,))
    unit = run.commit(2, waiting, kind=Kind.RUN_PAUSED, unless_answered=True)
    assert writer.submit(other.commit(1), unit, other.commit(2)) == ["stored", outcome, "stored"]
    assert other.step == 2
    if outcome == "stored":
        assert Turn.objects.get(pk=run.turn).state == "waiting"
        assert run.said == [("run_paused", "2")]
    else:
        assert (Turn.objects.get(pk=run.turn).state, run.step) == ("running", 0)
        assert run.said == []


def test_calls_made_just_before_count_when_a_turn_is_left_waiting(writer: InLoop, make_run: MakeRun, world: World) -> None:
    run = make_run()
    call = world.call(run.turn, "call_1", "pending")
    ToolCall.objects.filter(pk=call).update(state="done", stored=True)
    pending = Statement("update sessions_app_toolcall set state = 'pending', stored = %s where id = %s", (False, call))
    assert writer.submit(run.commit(1, pending), run.commit(2, unless_answered=True)) == ["stored", "stored"]


@pytest.mark.parametrize("others", [False, True])
def test_an_end_that_something_follows_is_handed_back_when_all_before_it_is_stored(
    writer: InLoop, make_run: MakeRun, others: bool
) -> None:
    run, other, dead = make_run(), make_run(), make_run()
    assert writer.submit(run.commit(1)) == ["stored"]
    Turn.objects.filter(pk=run.turn).update(attention=True)
    Turn.objects.filter(pk=dead.turn).update(state="cancelled")
    end = replace(run.commit(2, kind=Kind.TURN_ENDED), unless_attention=True)
    units = [run.delta("one"), run.delta("two", "p2"), end]
    if others:
        # A refusal among them makes the whole attempt be tried again.
        twice = Statement("insert into sessions_app_turn (id) values (%s)", (other.turn,))
        units += [other.commit(1, twice), dead.commit(1)]
    answers = writer.begin_submit(*units)
    assert answers[2].result(WAIT) == "answered"
    assert run.said == [("step_done", "1"), ("text_delta", "one"), ("text_delta", "two")]
    assert (run.step, end.attention) == (1, True)
    assert writer.submit(replace(end, unless_attention=False)) == ["stored"]


def test_a_commit_point_tells_whether_there_is_something_to_look_at(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    first, second = run.commit(1), run.commit(2)
    assert writer.submit(first) == ["stored"]
    Turn.objects.filter(pk=run.turn).update(attention=True)
    assert writer.submit(second) == ["stored"]
    assert (first.attention, second.attention) == (False, True)
    end = replace(make_run().commit(1), unless_attention=True)
    assert writer.submit(end) == ["stored"]


# --- bad data ---


def test_only_the_bad_unit_fails_and_what_its_run_says_after_it(writer: InLoop, make_run: MakeRun, world: World) -> None:
    tenant = world.tenant()
    runs = [make_run(tenant) for _ in range(6)]
    bad = runs[3]
    twice = Statement("insert into sessions_app_turn (id) values (%s)", (bad.turn,))
    units = [run.commit(1) for run in runs] + [bad.commit(2, twice), bad.commit(3)] + [run.commit(4) for run in runs]
    outcomes = writer.submit(*units)
    assert outcomes[:6] == ["stored"] * 6
    assert isinstance(outcomes[6], journal.BadUnit)
    assert isinstance(outcomes[7], journal.BadUnit)
    assert outcomes[8:] == ["stored" if run is not bad else outcomes[11] for run in runs]
    assert isinstance(outcomes[11], journal.BadUnit)
    assert [run.step for run in runs] == [4, 4, 4, 1, 4, 4]
    assert bad.said == [("step_done", "1")]


def test_a_bad_units_error_does_not_quote_its_data(writer: InLoop, make_run: MakeRun, caplog: pytest.LogCaptureFixture) -> None:
    run = make_run()
    bad = Statement("update sessions_app_turn set public_id = null, error = %s where id = %s", ("the secret", run.turn))
    (failed,) = writer.submit(run.commit(1, bad))
    assert isinstance(failed, journal.BadUnit)
    assert failed.__cause__ is None
    assert "secret" not in str(failed)
    assert "secret" not in caplog.text


def test_a_run_whose_delta_was_bad_fails_at_its_next_commit_point(writer: InLoop, make_run: MakeRun) -> None:
    run, other = make_run(), make_run()
    writer.put(
        Unit(run.tenant, run.session, run.turn, 1, [Happening(Kind.TEXT_DELTA, {"delta": "x", "odd": object()})]),
        other.delta("ok"),
    )
    (failed,) = writer.submit(run.commit(1))
    assert isinstance(failed, journal.BadUnit)
    assert writer.submit(other.commit(1)) == ["stored"]
    assert other.said == [("text_delta", "ok"), ("step_done", "1")]


# --- locks (SQLite has one writer and no row locks) ---


def test_a_locked_turn_waits_and_what_comes_after_it_stays_behind(
    writer: InLoop, make_run: MakeRun, world: World, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    tenant = world.tenant()
    run, other = make_run(tenant), make_run(tenant)
    with somebody_holds("select 1 from sessions_app_turn where id = %s for update", run.turn):
        answers = writer.begin_submit(run.delta("before"), run.commit(1), run.delta("after"), other.commit(1))
        assert answers[3].result(WAIT) == "stored"
        assert answers[0].result(WAIT) == "stored"
        (late,) = writer.begin_submit(run.delta(" and later"))
        assert writer.submit(other.commit(2)) == ["stored"]
        assert not answers[1].done()
        assert not answers[2].done()
        assert not late.done()
        assert run.said == [("text_delta", "before")]
    assert [answer.result(WAIT) for answer in [*answers, late]] == ["stored"] * 5
    assert run.said == [("text_delta", "before"), ("step_done", "1"), ("text_delta", "after and later")]


@pytest.mark.parametrize("with_commit_points", [False, True])
def test_one_tenants_counter_held_for_long_does_not_stop_anothers_run(
    writer: InLoop, make_run: MakeRun, on_postgres: bool, with_commit_points: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    run, other = make_run(), make_run()
    with somebody_holds("select 1 from tenant_counter where tenant_id = %s for update", run.tenant):
        first = run.commit(1) if with_commit_points else run.delta("first")
        answers = writer.begin_submit(first, other.delta("x"), other.commit(1))
        assert [answer.result(WAIT) for answer in answers[1:]] == ["stored", "stored"]
        for step in range(2, 6):
            assert writer.submit(other.delta("x"), other.commit(step)) == ["stored", "stored"]
        assert not answers[0].done()
    assert answers[0].result(WAIT) == "stored"
    assert writer.submit(run.commit(2)) == ["stored"]
    assert run.step == 2


def test_a_commit_point_locks_its_turn_before_its_statements_lock_anything(
    writer: InLoop, make_run: MakeRun, world: World, on_postgres: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that locks the turns is one statement with the first ones of the unit."""
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    run, other = make_run(), make_run()
    world.call(run.turn, "c1")
    store, locked = writer.writer._store, []
    real = store.attempt

    async def attempt(units: Sequence[Unit], *args: Any, **kwargs: Any) -> Written:
        try:
            return await real(units, *args, **kwargs)
        except Locked:
            locked.append(units)
            raise

    monkeypatch.setattr(store, "attempt", attempt)
    title = Statement("update sessions_app_toolcall set title = 'Tide' where session_id = %s", (run.session,))
    both = "select 1 from sessions_app_turn t join sessions_app_toolcall c on c.turn_id = t.id where t.id = %s for update"
    with somebody_holds(both, run.turn):
        answers = writer.begin_submit(run.commit(1, title), other.commit(1))
        assert answers[1].result(WAIT) == "stored"
        # The turn was skipped without waiting. A statement that reached the call first would have waited for it.
        assert not answers[0].done()
        assert locked == []
    assert answers[0].result(WAIT) == "stored"


ROWS = {
    "position": "select 1 from session_tail where session_id = %s for update",
    "session": "select 1 from sessions_app_session where id = %s for update",
    "call": "select 1 from sessions_app_toolcall where session_id = %s for update",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_one_session_held_for_long_stops_neither_its_tenants_other_runs_nor_another_tenants(
    writer: InLoop, make_run: MakeRun, world: World, on_postgres: bool, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    run, other = make_run(), make_run()
    sibling = make_run(run.tenant)
    world.call(run.turn, "c1")
    store, waited = writer.writer._store, []
    real = store.attempt

    async def attempt(units: Sequence[Unit], *args: Any, **kwargs: Any) -> Written:
        try:
            return await real(units, *args, **kwargs)
        except Locked:
            waited.append({unit.tenant for unit in units})
            raise

    monkeypatch.setattr(store, "attempt", attempt)
    place = StepRef(run.tenant, run.session, run.turn, 1, 1)
    told = [
        *history.message(place, "assistant", "hm", timezone.now(), origin=Origin.SERVER),
        Statement("update sessions_app_toolcall set title = 'Tide' where session_id = %s", (run.session,)),
    ]
    with somebody_holds(ROWS[row], run.session):
        answers = writer.begin_submit(run.commit(1, *told), other.delta("x"), other.commit(1), sibling.commit(1))
        assert [answer.result(WAIT) for answer in answers[1:]] == ["stored"] * 3
        for step in range(2, 12):
            late = writer.begin_submit(run.delta(f"{step} "))
            for each in (other, sibling):
                assert writer.submit(each.delta("x"), each.commit(step)) == ["stored", "stored"]
        assert not answers[0].done()
        # Once for all who were in one flush with it; from then on nothing of it is waited for.
        assert len(waited) <= 1, waited
    assert [answer.result(WAIT) for answer in (answers[0], *late)] == ["stored", "stored"]
    assert run.step == 1
    assert not writer.writer._held


def test_deltas_behind_a_position_that_is_held_stop_no_other_tenants_run(
    writer: InLoop, make_run: MakeRun, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    run, other = make_run(), make_run()
    sibling = make_run(run.tenant)
    with somebody_holds(ROWS["position"], run.session):
        answers = writer.begin_submit(run.delta("so "), other.delta("x"), sibling.delta("y"))
        assert [answer.result(WAIT) for answer in answers[1:]] == ["stored", "stored"]
        assert writer.submit(other.delta("x"), sibling.delta("y")) == ["stored", "stored"]
        assert not answers[0].done()
    assert answers[0].result(WAIT) == "stored"
    assert run.said == [("text_delta", "so ")]


def test_a_web_transaction_in_sqlite_is_waited_for(writer: InLoop, make_run: MakeRun, on_postgres: bool) -> None:
    if on_postgres:
        pytest.skip("about SQLite's one writer")
    run = make_run()
    with journal.transaction():
        Session.objects.filter(pk=run.session).update(agent_name="changed")
        (answer,) = writer.begin_submit(run.commit(1))
        assert not answer.done()
    assert answer.result(WAIT) == "stored"


# --- announcements ---


def test_two_announcements_a_flush_durable_sessions_first(
    writer: InLoop, make_run: MakeRun, world: World, announced: Announced
) -> None:
    tenant = world.tenant()
    durable, free = make_run(tenant), make_run(tenant)
    announced.lists.clear()
    writer.submit(free.delta("a"), durable.delta("b"), durable.commit(1), free.delta("c"))
    announced.wait(lambda: len(announced.lists) == 2)
    by_session = {each.items[0].session: each for each in announced.all}
    assert (by_session[durable.session].before, by_session[durable.session].upto) == (2, 4)
    assert (by_session[free.session].before, by_session[free.session].upto) == (4, 5)
    assert [event.data for event in events_of(announced.all, free.session)] == ['{"part":"p1","delta":"ac"}']


def test_durable_events_are_announced_and_answered_after_the_barrier_and_deltas_at_once(
    writer: InLoop, make_run: MakeRun, world: World, announced: Announced, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite's commit is on disk")
    tenant = world.tenant()
    durable, free = make_run(tenant), make_run(tenant)
    announced.lists.clear()
    gate = asyncio.Event()
    asked = threading.Event()
    real = writer.writer._store.barrier

    async def barrier() -> int | None:
        asked.set()
        await gate.wait()
        return await real()

    writer.writer._store.barrier = barrier  # type: ignore[method-assign]
    answers = writer.begin_submit(durable.commit(1), free.delta("now"))
    assert answers[1].result(WAIT) == "stored"
    assert asked.wait(WAIT)
    announced.wait(lambda: bool(events_of(announced.all, free.session)))
    # Stored, but what was said before it is not out yet.
    assert writer.submit(durable.delta("behind")) == ["stored"]
    assert writer.submit(free.delta("too")) == ["stored"]
    announced.wait(lambda: len(events_of(announced.all, free.session)) == 2)
    assert not answers[0].done()
    assert events_of(announced.all, durable.session) == []
    writer.loop.call_soon_threadsafe(gate.set)
    assert answers[0].result(WAIT) == "stored"
    announced.wait(lambda: len(events_of(announced.all, durable.session)) == 2)
    assert [event.kind for event in events_of(announced.all, durable.session)] == ["step_done", "text_delta"]
    covered = sorted((each.before, each.upto) for each in announced.all)
    assert [before for before, _ in covered[1:]] == [upto for _, upto in covered[:-1]]


def test_with_durable_deltas_they_wait_for_the_barrier_too(
    make_writer: Callable[[], InLoop], make_run: MakeRun, settings: object, announced: Announced
) -> None:
    settings.AGENTHOST_DURABLE_DELTAS = True  # type: ignore[attr-defined]
    writer, run = make_writer(), make_run()
    announced.lists.clear()
    order: list[str] = []
    real = writer.writer._store.barrier

    async def barrier() -> int | None:
        era = await real()
        order.append(f"barrier, {len(announced.lists)} announced")
        return era

    writer.writer._store.barrier = barrier  # type: ignore[method-assign]
    assert writer.submit(run.delta("x")) == ["stored"]
    assert len(events_of(announced.all, run.session)) == 1
    assert order == (["barrier, 0 announced"] if connection.vendor == "postgresql" else [])


# --- back-pressure, the end ---


def test_a_run_that_speaks_faster_than_it_is_stored_is_made_to_wait(
    writer: InLoop, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "UNSENT_BYTES", 1000)
    run = make_run()

    async def speak() -> tuple[bool, bool]:
        first = writer.writer.put(run.delta("a" * 400))
        second = writer.writer.put(run.delta("b" * 700))
        waits = (isinstance(first, asyncio.Future), isinstance(second, asyncio.Future))
        await first
        await asyncio.wait_for(second, WAIT)
        return waits

    assert writer.do(speak()) == (False, True)
    assert run.said == [("text_delta", "a" * 400 + "b" * 700)]


def test_what_came_before_the_close_is_stored_and_what_comes_after_is_refused(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    answers = writer.begin_submit(run.delta("a"), run.commit(1))
    writer.do(writer.writer.close())
    assert [answer.result(WAIT) for answer in answers] == ["stored", "stored"]
    (refused,) = writer.submit(run.commit(2))
    assert isinstance(refused, journal.WriterClosed)
    assert run.said == [("text_delta", "a"), ("step_done", "1")]


# --- shares of a flush ---


def test_a_tenant_that_stores_megabytes_delays_anothers_delta_by_one_flush(
    writer: InLoop, make_run: MakeRun, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small delta came last, and is announced with the first flush."""
    quiet = make_run()
    tenant = make_run().tenant
    loud = [make_run(tenant) for _ in range(20)]
    announced.lists.clear()
    writer.put(*(run.delta("x" * 60_000) for run in loud), quiet.delta("hello"))
    announced.wait(lambda: all(events_of(announced.all, run.session) for run in [*loud, quiet]))
    assert [event.data for event in events_of(announced.lists[0], quiet.session)] == ['{"part":"p1","delta":"hello"}']
    for flush in announced.lists:
        assert sum(len(event.data) for each in flush for item in each.items for event in item.events) < 400_000
    assert all(run.said == [("text_delta", "x" * 60_000)] for run in loud)


def test_a_unit_larger_than_a_flush_is_stored(writer: InLoop, make_run: MakeRun) -> None:
    run = make_run()
    assert writer.submit(run.delta("x" * 1_000_000), run.commit(1)) == ["stored", "stored"]
    assert run.said == [("text_delta", "x" * 1_000_000), ("step_done", "1")]


def test_runs_wait_for_room_sooner_where_many_have_text_that_waits(
    writer: InLoop, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process keeps is bounded however many runs it has."""
    monkeypatch.setattr(writer_module, "UNSENT_BYTES_IN_ALL", 10_000)
    runs = [make_run() for _ in range(4)]

    async def put() -> list[bool]:
        rooms = [writer.writer.put(run.delta("x" * 3_000)) for run in runs]
        waits = [room is not READY for room in rooms]
        for room in rooms:
            await room
        return waits

    assert writer.do(put()) == [False, False, False, True]
