"""The life of a worker: its leases, its runs, how it goes away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction

from sessions_app.core import turns
from sessions_app.core.base import loop_calls, process_loop
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Following
from sessions_app.core.log import journal
from sessions_app.core.log.journal import barriers, postgres
from sessions_app.core.log.journal.types import Unit
from sessions_app.core.records import stored_messages
from sessions_app.core.tenancy import definitions
from sessions_app.core.turns import stopping, tasks
from sessions_app.core.worker import loading, runner
from sessions_app.core.worker.progress import Progress
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Message, OptionValue, Session, Turn
from tests.core import tools
from tests.core.conftest import World, claim_one, kinds, lease_is_over, locked, turn_of, wait_for, wait_for_state
from tests.core.threads import in_thread
from tests.core.turns.test_turns import full
from tests.core.worker.test_leases import wait_for_a_renewal
from tests.fakes.model_server import ModelServer, attempts
from tests.fakes.steps import call, gate, text


def test_a_run_that_finishes_while_its_worker_stops_is_not_handed_over(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    """Its leases are renewed until the last run is over, however long the grace is."""
    first = start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([text("to the "), gate("hold"), text("end")]))
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    leaving = in_thread(lambda: first.stop(grace=120))
    start_worker()
    wait_for(lambda: first._stopping.is_set(), "the stop has begun")
    for _ in range(2):
        wait_for_a_renewal(first)
    model.open_gate("hold")
    turn = wait_for_state(accepted, "done", "error")
    leaving.join(90)
    assert (turn.state, turn.takeovers) == ("done", 0)
    assert full(session)[-1] == ("assistant", "to the end")


def test_a_stopping_worker_hands_its_run_over_between_two_steps(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    tools.forget()
    first = start_worker()
    session = alice.session(tools=[{"name": "block", "trust": True}])
    accepted = alice.say(session, model.script([call("block", {"n": 1}, id="b")], [text("done elsewhere")]))
    assert tools.entered.wait(90)
    leaving = in_thread(lambda: first.stop(grace=1.0, drain=120))
    second = start_worker()
    wait_for(lambda: first._live and all(live.run and live.run._hand_over for live in first._live), "asked to hand over")
    tools.release.set()
    turn = wait_for_state(accepted, "done", "error")
    leaving.join(90)
    assert (turn.state, turn.takeovers, turn.worker) == ("done", 0, second.name)
    assert tools.runs == [("block", 1)], "the tool ran once"
    assert full(session)[-1] == ("assistant", "done elsewhere")


def test_a_stopped_worker_leaves_no_task_and_no_caller_behind(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    one = Worker()
    one.start()
    session = alice.session()
    accepted = alice.say(session, model.script([text("a"), gate("never")]))
    waker = in_thread(one.wake)
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    assert process_loop.current() is one._loop
    one.stop(grace=0.1)
    waker.join(90)
    assert process_loop.current() is None, "its connections are closed"
    assert not waker.is_alive(), "whoever woke the worker is let go"
    assert not one._thread.is_alive()
    assert not asyncio.all_tasks(one._loop)
    assert turn_of(accepted).state == "running"
    start_worker()
    assert wait_for_state(accepted, "error").error == "interrupted"


def test_the_lease_of_a_run_that_ignores_its_stop_is_not_renewed(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told to stop is no longer driven, so whoever sweeps may have it."""
    go = threading.Event()
    original = runner.Run.drive

    async def drive(run: runner.Run) -> None:
        try:
            await original(run)
        except asyncio.CancelledError:
            await asyncio.to_thread(go.wait, 120)
            raise

    monkeypatch.setattr(runner.Run, "drive", drive)
    first = start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([text("a"), gate("never")]))
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    first._loop.call_soon_threadsafe(first._live.drop_all)
    try:
        assert wait_for_state(accepted, "error").error == "interrupted"
    finally:
        go.set()


def test_a_worker_that_takes_over_its_own_run_runs_it_once(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    """The stale writes of the run before say nothing about the one that goes on."""
    session = alice.session()
    script = model.script([gate("hold"), text("hello"), text(" there")], [gate("more"), text("hello again")])
    accepted = alice.say(session, script)
    one = start_worker()
    model.wait_gate("hold")
    one._sweeper._in_contact_since = 0.0

    def is_taken() -> bool:
        # Again, because a renewal may come in between.
        Turn.objects.filter(pk=accepted.turn_id, takeovers=0).update(lease_expires_at="2020-01-01T00:00:00Z")
        return len(model.requests_of(script)) == 2

    wait_for(is_taken, "the second run's model call")
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"
    model.open_gate("hold")
    model.open_gate("more")
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.takeovers) == ("done", 1)


def test_an_old_runs_closed_provider_call_is_not_recorded_for_the_new_run(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    old = claim_one("one")
    assert old is not None
    Turn.objects.filter(pk=accepted.turn_id).update(lease_expires_at="2020-01-01T00:00:00Z")
    new = turns.take_over("two")
    assert isinstance(new, turns.Claimed)
    turns.provider_closed(old)
    assert turn_of(accepted).provider_closed_at is None
    turns.stop(accepted.turn_id, turns.Stop(cause="client", reason="end_turn"))
    turns.provider_closed(old)
    assert turn_of(accepted).provider_closed_at is None
    turns.provider_closed(new)
    assert turn_of(accepted).provider_closed_at is not None


def test_an_internal_error_is_logged_without_its_message(
    alice: World,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = "my dear diary"

    async def look(run: runner.Run) -> list[Any]:
        raise ValueError(words)

    monkeypatch.setattr(runner.Run, "look", look)
    start_worker()
    with caplog.at_level(logging.DEBUG):
        assert wait_for_state(alice.say(alice.session(), "x"), "error").error == "internal"
    assert "ValueError" in caplog.text
    assert "diary" not in caplog.text


def test_one_turn_that_cannot_be_taken_over_delays_no_other(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = alice.say(alice.session(), "x"), alice.say(alice.session(), model.script([text("well")]))
    assert claim_one("dead") is not None
    assert claim_one("dead") is not None
    Turn.objects.filter(pk=broken.turn_id).update(lease_expires_at="2019-01-01T00:00:00Z")
    Turn.objects.filter(pk=good.turn_id).update(lease_expires_at="2020-01-01T00:00:00Z")
    original = stopping.open_step

    def open_step(turn: Turn) -> list[Any]:
        if turn.pk == broken.turn_id:
            raise ValueError("unreadable")
        return original(turn)

    monkeypatch.setattr(stopping, "open_step", open_step)
    start_worker()
    wait_for_state(good, "done")
    later = alice.say(alice.session(), model.script([text("also well")]))
    wait_for_state(later, "done")


def test_a_locked_turn_delays_no_other_turns_lease_renewal(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    worker = start_worker()
    held, free = (world.say(world.session(), model.script([text("a"), gate("never")])) for world in (alice, bob))
    for accepted in (held, free):
        wait_for_state(accepted, "running")
    locked, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Turn.objects.select_for_update(no_key=True).get(pk=held.turn_id)
            locked.set()
            let_go.wait(90)

    holding = in_thread(hold)
    try:
        assert locked.wait(60)
        for _ in range(2):
            wait_for_a_renewal(worker)
        assert turn_of(free).takeovers == 0
    finally:
        let_go.set()
        holding.join(60)
    for world in (alice, bob):
        stopping.cancel_tenant(world.caller.tenant)


def test_a_locked_turn_delays_no_other_turns_release_when_its_worker_stops(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    first = start_worker()
    held, free = (world.say(world.session(), model.script([text("a"), gate("never")])) for world in (alice, bob))
    wait_for(lambda: all(stopping.open_step(turn_of(each)) for each in (held, free)), "both have begun to speak")
    with locked(lambda: Turn.objects.select_for_update().get(pk=held.turn_id)):
        leaving = in_thread(lambda: first.stop(grace=0))
        leaving.join(90)
        taken = turns.take_over("another")
        assert isinstance(taken, turns.Ended)
        assert taken.turn_id == free.turn_id
        assert turn_of(held).state == "running"
    taken = turns.take_over("another")
    assert isinstance(taken, turns.Ended)
    assert taken.turn_id == held.turn_id
    for world in (alice, bob):
        stopping.cancel_tenant(world.caller.tenant)


def _of_claims(monkeypatch: pytest.MonkeyPatch, instead: Callable[[], object]) -> None:
    """Call ``instead`` when a claim is committed and its runs have begun, before it is known to be on disk."""
    follow, begin, wait = postgres.follow, loading.LoadWithClaim.begin, barriers.Barrier.wait
    claimed = threading.local()

    def followed(following: Following) -> int | None:
        def received(rows: list[Rows]) -> None:
            following.received(rows)
            in_any_thread(instead)

        return follow(replace(following, received=received))

    def begun(loader: loading.LoadWithClaim, rows: list[Rows]) -> None:
        begin(loader, rows)
        # On SQLite the claim runs in a thread, and is on disk already.
        claimed.here = loop_calls.current() is None

    def waited(barrier: barriers.Barrier) -> None:
        if getattr(claimed, "here", False):
            claimed.here = False
            instead()
        wait(barrier)

    monkeypatch.setattr(postgres, "follow", followed)
    monkeypatch.setattr(loading.LoadWithClaim, "begin", begun)
    monkeypatch.setattr(barriers.Barrier, "wait", waited)


def in_any_thread(blocking: Callable[[], object]) -> None:
    """Call a blocking function from the worker's loop or a thread."""
    if loop_calls.current() is None:
        blocking()
    else:
        loop_calls.wait_for(asyncio.to_thread(blocking))


def test_long_histories_of_one_tenant_that_are_read_for_long_delay_no_other_tenants_turn(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [{"role": "user", "content": "x" * 300_000}, {"role": "assistant", "content": "I see"}]
    long = [alice.session(seed=said) for _ in range(3)]
    short = bob.session()
    read, go = stored_messages.parse_for_models, threading.Event()

    def read_slowly(sessions: Sequence[int], rows: Sequence[Any]) -> Any:
        if {each.pk for each in long} & set(sessions):
            assert go.wait(120)
        return read(sessions, rows)

    monkeypatch.setattr(stored_messages, "parse_for_models", read_slowly)
    hers = [alice.say(session, model.script([text("read")])) for session in long]
    his = bob.say(short, model.script([text("at once")]))
    start_worker()
    try:
        wait_for_state(his, "done")
        later = bob.say(short, model.script([text("again")]))
        wait_for_state(later, "done")
        assert {turn_of(each).state for each in hers} == {"running"}
    finally:
        go.set()
    for session, accepted in zip(long, hers, strict=True):
        wait_for_state(accepted, "done")
        assert full(session)[-1] == ("assistant", "read")


def test_a_run_asks_its_model_but_stores_nothing_before_its_claim_is_durable(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk, wants_to_store, stored = threading.Event(), threading.Event(), list[str]()
    is_claimed, put = Progress._await_durable_claim, journal.Writer.put

    async def wants(progress: Progress) -> None:
        wants_to_store.set()
        await is_claimed(progress)

    def noted(writer: journal.Writer, unit: Unit) -> Awaitable[None]:
        stored.extend(happening.kind for happening in unit.happenings)
        return put(writer, unit)

    monkeypatch.setattr(Progress, "_await_durable_claim", wants)
    monkeypatch.setattr(journal.Writer, "put", noted)
    _of_claims(monkeypatch, lambda: on_disk.wait(60))
    session = alice.session()
    accepted = alice.say(session, model.script([text("said early"), gate("hold"), text(", stored late")]))
    worker = start_worker()
    try:
        assert wants_to_store.wait(60)
        # Whatever the run did not wait with is done when its loop has come round.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), worker._loop).result(60)
        assert stored == []
    finally:
        on_disk.set()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    model.open_gate("hold")
    wait_for_state(accepted, "done")
    assert full(session)[-1] == ("assistant", "said early, stored late")


def test_a_run_whose_claim_may_be_lost_in_a_crash_is_dropped_with_its_model_call(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only this test ends the lease: one of six seconds could expire on a busy machine before the first look.
    settings.AGENTHOST_LEASE_SECONDS = 60.0
    crashes = [True]
    asked = threading.Event()

    def crash() -> None:
        if crashes:
            crashes.clear()
            assert asked.wait(60)
            raise NotReady

    _of_claims(monkeypatch, crash)
    session = alice.session()
    script = model.script(attempts([text("first"), gate("hold")], [text("second")]))
    accepted = alice.say(session, script)
    start_worker()
    request = model.wait_request(script)
    asked.set()
    assert model.wait_ended(request) == "closed"
    assert "text_delta" not in kinds(session)
    wait_for(lambda: turn_of(accepted).lease_expires_at is not None, "the worker lets go of it")
    lease_is_over(accepted)
    wait_for_state(accepted, "done")
    assert full(session)[-1] == ("assistant", "second")


class SlowClaims:
    """Claims that begin when they are let; how many are under way at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.most, self.ended = threading.Event(), 0, 0
        self._under_way, self._lock, self._claim = 0, threading.Lock(), turns.claim
        monkeypatch.setattr(turns, "claim", self)

    def __call__(self, *args: Any, **kwargs: Any) -> turns.Claims:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        try:
            in_any_thread(lambda: self.go.wait(90))
            return self._claim(*args, **kwargs)
        finally:
            with self._lock:
                self._under_way -= 1
                self.ended += 1


def test_claims_of_the_sweep_and_of_wake_ups_together_use_no_more_slots_than_there_are(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look when all four places are free, and each would take three: one is kept for other tenants."""
    settings.AGENTHOST_WORKER_CONCURRENCY, settings.AGENTHOST_QUEUE_GRACE_SECONDS = 4, 0.0
    claims = SlowClaims(monkeypatch)
    prompt = model.script([gate("crowd"), text("done")])
    accepted = [alice.say(alice.session(), prompt) for _ in range(8)]
    worker = start_worker()
    worker.wake()
    # The one is in its claim, the other waits for it to end or is in a claim of its own.
    wait_for(lambda: claims.most == 2 or worker._claiming._waiters, "both want to claim")
    claims.go.set()
    wait_for(lambda: claims.ended >= 4, "both have claimed, and again")
    model.wait_gate("crowd", times=3)
    assert claims.most == 1
    assert Turn.objects.filter(state="running").count() == 3
    model.open_gate("crowd")
    for each in accepted:
        wait_for_state(each, "done")


def test_a_worker_that_has_become_full_wakes_another_one(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several turns may have shared the wake-up that this worker took."""
    settings.AGENTHOST_WORKER_CONCURRENCY = 1
    # Only the wake-up claims: on a busy machine the sweep could find the turns overdue first.
    settings.AGENTHOST_QUEUE_GRACE_SECONDS = 60.0
    woken = threading.Event()
    script = model.script([text("a"), gate("hold")])
    first, second = alice.say(alice.session(), script), alice.say(alice.session(), script)
    monkeypatch.setattr(tasks, "wake", lambda _: woken.set())
    start_worker().wake()
    assert woken.wait(90)
    assert sorted([turn_of(first).state, turn_of(second).state]) == ["queued", "running"]
    model.open_gate("hold")
    wait_for_state(first, "done")
    wait_for_state(second, "done")


def _break_history(session: Session) -> None:
    Message.objects.filter(session=session).update(content="{broken")


def _break_options(session: Session) -> None:
    OptionValue.objects.filter(session=session).update(sealed=b"broken")


@pytest.mark.parametrize("damage", [_break_history, _break_options])
def test_a_session_that_cannot_be_read_ends_its_own_turn_only(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, damage: Callable[[Session], None]
) -> None:
    broken = alice.session(options={"key": "sk-1"})
    prompt = model.script([text("done")])
    accepted = [each.say(session, prompt) for each, session in ((alice, broken), (alice, alice.session()), (bob, bob.session()))]
    damage(broken)
    start_worker()
    turns = [wait_for_state(each, "done", "error") for each in accepted]
    assert [(turn.state, turn.takeovers) for turn in turns] == [("error", 0), ("done", 0), ("done", 0)]


def test_a_worker_that_has_not_read_a_definition_yet_runs_it(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    accepted = [alice.say(alice.session(), model.script([text("done")])) for _ in range(3)]
    definitions.by_digest.cache_clear()
    start_worker()
    turns = [wait_for_state(each, "done", "error") for each in accepted]
    assert [(turn.state, turn.takeovers) for turn in turns] == [("done", 0)] * 3


def test_a_locked_tenant_is_skipped_by_a_claim_on_the_loop_and_claimed_later(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    prompt = model.script([text("done")])
    hers, his = alice.say(alice.session(), prompt), bob.say(bob.session(), prompt)
    with locked(lambda: journal.lock_counter(alice.caller.tenant)):
        start_worker()
        wait_for_state(his, "done")
        assert turn_of(hers).state == "queued"
    wait_for_state(hers, "done")


@pytest.mark.django_db(transaction=True)
def test_a_duty_that_loses_its_first_cancellation_does_not_delay_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()

    async def stubborn(_: Worker) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Worker, "_check_when_in_doubt", stubborn)
    one = Worker()
    one.start()
    one.stop(0)
    assert lost.is_set()
    assert not one._thread.is_alive()
