"""The sweep's tasks: none waits for a lock, for another task, or for another tenant."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base import maintenance
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event, NewEvent
from sessions_app.core.records import clients
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.turns import stopping
from sessions_app.core.worker import duties
from sessions_app.core.worker.sweep import Sweeper
from sessions_app.core.worker.worker import Worker
from sessions_app.models import (
    Measure,
    Session,
    SessionClient,
    SessionTail,
    TenantCounter,
    ToolCall,
    Turn,
    UsageEntry,
    UsageTotal,
)
from tests.core import tools
from tests.core.client_actions import make
from tests.core.conftest import World, claim_one, lease_is_over, locked, turn_of, wait_for, wait_for_state
from tests.core.threads import in_thread
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text

FOR_EVER = "2100-01-01T00:00:00Z"


@pytest.fixture
def row_locks(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")


def lock(rows: QuerySet[Any]) -> Callable[[], object]:
    return lambda: list(rows.select_for_update())


def with_vanished_client(world: World) -> Session:
    """A session whose client's process died without a word."""
    session = make(world, client=clients.Entry("gone", None, []))
    assert clients.active(session.pk) is not None
    return session


def speaks_before_its_worker_dies(accepted: turns.Accepted, step: int = 1) -> None:
    """Its run has stored text, so it has to be ended and cannot go on."""
    turn = turn_of(accepted)
    with journal.transaction() as tx:
        for happening in (
            Happening(Kind.STEP_STARTED, {"turn": turn.public_id, "step": step}),
            Happening(Kind.TEXT_OPENED, {"turn": turn.public_id, "step": step, "part": f"{step}.0"}),
            Happening(Kind.TEXT_DELTA, {"turn": turn.public_id, "step": step, "part": f"{step}.0", "delta": "half"}),
        ):
            tx.append(NewEvent(turn.tenant_id, turn.session_id, happening, fence=turn.fence))


def stream(kind: Kind, **payload: Any) -> Event:
    return Event(1, 1, kind, exact_json.dumps({"turn": "t", **payload}), 1)


# --- no duty waits for a lock --------------------------------------------------------------------


@pytest.mark.usefixtures("row_locks")
def test_a_locked_session_with_a_vanished_client_delays_no_other_tenant(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    of_alice, of_bob = with_vanished_client(alice), with_vanished_client(bob)
    dead = bob.say(bob.session(), model.script([text("taken over")]))
    assert claim_one("dead") is not None
    Turn.objects.filter(pk=dead.turn_id).update(lease_expires_at=FOR_EVER)
    with locked(lock(Session.objects.filter(pk=of_alice.pk))):
        start_worker()
        wait_for(lambda: clients.active(of_bob.pk) is None, "the other tenant's client has left")
        lease_is_over(dead)
        turn = wait_for_state(dead, "done", "error")
        assert (turn.state, turn.takeovers) == ("done", 1)
        assert clients.active(of_alice.pk) is not None
    wait_for(lambda: clients.active(of_alice.pk) is None, "the client of the session that was locked has left")


@pytest.mark.usefixtures("row_locks")
@pytest.mark.parametrize("row", ["session", "turn", "call", "position", "counter"])
def test_no_locked_row_of_one_tenant_delays_other_tenants_take_overs_and_deadlines(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, row: str
) -> None:
    """Alice's run is in a tool, so that its end closes a call; Bob's has spoken and ends too."""
    tools.forget()
    worker = start_worker()
    session = alice.session(tools=[{"name": "block", "trust": True}])
    held = alice.say(session, model.script([call("block", {"n": 1}, id="b")]))
    assert tools.entered.wait(90)
    worker.stop(grace=0)
    free, late = bob.say(bob.session(), "x"), bob.say(bob.session(), "y")
    assert len(turns.claim("dead", 2).runs) == 2
    for accepted in (held, free, late):
        assert turn_of(accepted).state == "running"
    speaks_before_its_worker_dies(held, step=2)
    speaks_before_its_worker_dies(free)
    Turn.objects.filter(pk=held.turn_id).update(lease_expires_at="2019-01-01T00:00:00Z")
    Turn.objects.filter(pk=late.turn_id).update(lease_expires_at=FOR_EVER)
    Turn.objects.filter(pk__in=[held.turn_id, late.turn_id]).update(deadline_at=timezone.now() - timedelta(minutes=1))
    rows: dict[str, QuerySet[Any]] = {
        "session": Session.objects.filter(pk=session.pk),
        "turn": Turn.objects.filter(pk=held.turn_id),
        "call": ToolCall.objects.filter(turn_id=held.turn_id),
        "position": SessionTail.objects.filter(session_id=session.pk),
        "counter": TenantCounter.objects.filter(tenant_id=alice.caller.tenant),
    }
    assert rows[row].exists()
    lease_is_over(free)
    sweeper = Sweeper("sweeping", _in_contact_since=float("-inf"))
    try:
        with locked(lock(rows[row])):
            assert sweeper.take_next() is None
            assert (turn_of(held).state, turn_of(free).state) == ("running", "error")
            assert turns.stop_overdue() == 1
            assert (turn_of(held).state, turn_of(late).state) == ("running", "cancelled")
        wait_for(lambda: sweeper.take_next() or turn_of(held).state == "error", "what was locked is taken over afterwards")
    finally:
        tools.release.set()


@pytest.mark.usefixtures("row_locks")
def test_many_locked_turns_of_a_dead_worker_delay_another_tenants_take_over_as_little_as_one(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """A moment is two seconds here; to wait one for each of them would take longer than the test waits."""
    settings.AGENTHOST_LEASE_SECONDS = 60.0
    monkeypatch.setattr("sessions_app.core.base.lock_timeouts._SHORT_MS", 2000)
    held = [alice.say(alice.session(), "x") for _ in range(40)]
    free = bob.say(bob.session(), "y")
    assert len(turns.claim("dead", 41).runs) == 41
    for accepted in (*held, free):
        speaks_before_its_worker_dies(accepted)
        lease_is_over(accepted)
    Turn.objects.filter(pk__in=[each.turn_id for each in held]).update(lease_expires_at="2019-01-01T00:00:00Z")
    sweeper = Sweeper("sweeping", _in_contact_since=float("-inf"))
    with locked(lock(Session.objects.filter(tenant_id=alice.caller.tenant))):
        sweeping = in_thread(sweeper.take_next)
        wait_for_state(free, "error")
        sweeping.join(90)
        assert {turn_of(each).state for each in held} == {"running"}
    wait_for(lambda: sweeper.take_next() or turn_of(held[-1]).state == "error", "what was locked is taken over afterwards")


def test_joining_an_answer_of_many_pieces_takes_linear_time() -> None:
    def taken(deltas: int) -> float:
        events = [stream(Kind.STEP_STARTED, step=1), stream(Kind.TEXT_OPENED, part="1.0")]
        events += [stream(Kind.TEXT_DELTA, part="1.0", delta="x" * 4000)] * deltas
        begun = time.process_time()
        partial = stopping._PartialStep.of(events)
        spent = time.process_time() - begun
        assert len(partial.text) == 4000 * deltas
        assert partial.parts == [{"id": "1.0", "kind": "text", "text": partial.text}]
        return spent

    few = min(taken(200) for _ in range(5))
    assert min(taken(2_000) for _ in range(3)) < 30 * few


def test_tenants_take_turns_when_dead_workers_runs_are_taken_over(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Ending a run may take a second, and the runs of one tenant may be many and older than all others."""
    settings.AGENTHOST_LEASE_SECONDS = 60.0
    hers = [alice.say(alice.session(), "x") for _ in range(4)]
    his = [bob.say(bob.session(), "y") for _ in range(2)]
    assert len(turns.claim("dead", 6).runs) == 6
    for accepted in (*hers, *his):
        speaks_before_its_worker_dies(accepted)
        lease_is_over(accepted)
    Turn.objects.filter(pk__in=[each.turn_id for each in hers]).update(lease_expires_at="2019-01-01T00:00:00Z")
    order, open_step = list[int](), stopping.open_step

    def noted(turn: Turn) -> list[Any]:
        if turn.tenant_id not in order[-1:]:
            order.append(turn.tenant_id)
        return open_step(turn)

    monkeypatch.setattr(stopping, "open_step", noted)
    assert Sweeper("sweeping", _in_contact_since=float("-inf")).take_next() is None
    assert {turn_of(each).state for each in (*hers, *his)} == {"error"}
    tenants = [alice.caller.tenant, bob.caller.tenant]
    assert order == [*tenants, *tenants, alice.caller.tenant]


@pytest.mark.usefixtures("row_locks")
def test_many_overdue_turns_of_one_tenant_delay_no_other_tenants(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_ROWS_PER_TENANT", 2)
    monkeypatch.setattr(maintenance, "_MOST_ROWS", 4)
    of_alice = [alice.say(alice.session(), "x") for _ in range(5)]
    of_bob = bob.say(bob.session(), "y")
    Turn.objects.update(deadline_at=timezone.now() - timedelta(minutes=1))
    with locked(lock(Session.objects.filter(tenant_id=alice.caller.tenant))):
        assert turns.stop_overdue() == 1
        assert turn_of(of_bob).state == "cancelled"
    while turns.stop_overdue():
        pass
    assert {turn_of(each).state for each in of_alice} == {"cancelled"}


@pytest.mark.usefixtures("row_locks")
def test_a_locked_usage_total_of_one_tenant_delays_no_other_tenants_folding(alice: World, bob: World) -> None:
    for world in (alice, bob):
        world.session()
    while usage_entries.fold(100):
        pass
    for world in (alice, bob):
        world.session()
    with locked(lock(UsageTotal.objects.filter(tenant_id=alice.caller.tenant))):
        while usage_entries.fold(100):
            pass
        assert set(UsageEntry.objects.values_list("tenant_id", flat=True)) == {alice.caller.tenant}
    while usage_entries.fold(100):
        pass
    assert not UsageEntry.objects.exists()
    assert usage_entries.used(alice.caller.tenant, Measure.SESSIONS) == 2


def test_usage_entries_that_cannot_be_added_delay_no_other_tenants_folding(alice: World, bob: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite reports it as it reports a database that cannot be used")
    alice.session()
    day = UsageEntry.objects.values_list("day", flat=True)[0]
    of_alice = {"tenant_id": alice.caller.tenant, "key_id": 0, "measure": Measure.TOKENS, "day": day, "amount": 2**62}
    UsageEntry.objects.bulk_create(UsageEntry(**of_alice) for _ in range(4))
    bob.session()
    with pytest.raises(DatabaseError):
        usage_entries.fold(100)
    assert set(UsageEntry.objects.values_list("tenant_id", flat=True)) == {alice.caller.tenant}


# --- no duty waits for another -------------------------------------------------------------------


def test_a_duty_that_fails_every_time_delays_no_take_over(
    alice: World,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: Any) -> int:
        raise OperationalError("words of a row")

    # The look for what is due fails too: then all duties are.
    monkeypatch.setattr(duties, "_look", fails)
    for duty in ("leave_vanished", "end_grace_periods"):
        monkeypatch.setattr(connections, duty, fails)
    monkeypatch.setattr(turns, "stop_overdue", fails)
    dead = alice.say(alice.session(), model.script([text("taken over")]))
    assert claim_one("dead") is not None
    Turn.objects.filter(pk=dead.turn_id).update(lease_expires_at=FOR_EVER)
    with caplog.at_level(logging.INFO):
        start_worker()
        wait_for(lambda: caplog.text.count("periodic_task_failing") >= 3, "each of them has failed")
        lease_is_over(dead)
        assert wait_for_state(dead, "done").takeovers == 1
        after = alice.say(alice.session(), model.script([text("well")]))
        wait_for_state(after, "done")
    assert caplog.text.count("periodic_task_failing") == 3, "once each, although they failed all the time"
    assert "words of a row" not in caplog.text


@pytest.mark.parametrize("lost", [OperationalError("gone"), NotReady()])
def test_a_turn_that_cannot_be_taken_over_now_delays_no_other_and_does_not_count_as_an_outage(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch, settings: Any, lost: Exception
) -> None:
    settings.AGENTHOST_LEASE_SECONDS = 60.0
    broken, sound = alice.say(alice.session(), "x"), bob.say(bob.session(), "y")
    assert len(turns.claim("dead", 2).runs) == 2
    Turn.objects.filter(pk=broken.turn_id).update(lease_expires_at="2019-01-01T00:00:00Z")
    lease_is_over(sound)
    original = stopping.open_step

    def open_step(turn: Turn) -> list[Any]:
        if turn.pk == broken.turn_id:
            raise lost
        return original(turn)

    monkeypatch.setattr(stopping, "open_step", open_step)
    sweeper = Sweeper("sweeping", _in_contact_since=float("-inf"))
    taken = sweeper.take_next()
    assert taken is not None
    assert taken.turn_id == sound.turn_id
    monkeypatch.setattr(stopping, "open_step", original)
    Turn.objects.filter(pk=sound.turn_id).update(lease_expires_at=FOR_EVER)
    later = wait_for(sweeper.take_next, "it is tried again soon")
    assert later.turn_id == broken.turn_id


async def test_a_periodic_task_logs_once_that_it_fails_and_once_that_it_recovered(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception | None] = [ValueError("a"), ValueError("b"), OperationalError("c"), None, None, ValueError("d")]

    async def do() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    duty = PeriodicTask("example", do)
    with caplog.at_level(logging.INFO, "sessions_app.core.base.periodic_tasks"):
        while errors:
            await duty.attempt()
    said = [record.getMessage().split()[0] for record in caplog.records]
    assert said == ["periodic_task_failing", "periodic_task_failing", "periodic_task_recovered", "periodic_task_failing"]


# --- a worker's limit ----------------------------------------------------------------------------


def test_a_worker_takes_over_no_more_runs_than_it_has_slots_for(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    """What cannot go on needs no slot, and what can goes before turns that are queued."""
    settings.AGENTHOST_WORKER_CONCURRENCY = 2
    hold = model.script([gate("hold"), text("went on")])
    going_on = [alice.say(alice.session(), hold) for _ in range(4)]
    ending = alice.say(alice.session(), "x")
    assert len(turns.claim("dead", 16).runs) == 5
    for accepted in going_on:
        lease_is_over(accepted)
    speaks_before_its_worker_dies(ending)
    Turn.objects.filter(pk=ending.turn_id).update(lease_expires_at="2021-01-01T00:00:00Z")
    worker = start_worker()
    model.wait_request(hold, count=2)
    assert wait_for_state(ending, "error").error == "interrupted"
    wait_for(lambda: worker._sweeper.wants_slot, "the worker knows of the others")
    queued = bob.say(bob.session(), model.script([text("after them")]))
    assert len(worker._live) == 2
    assert Turn.objects.filter(worker="dead", state="running").count() == 2
    model.open_gate("hold")
    for accepted in (*going_on, queued):
        wait_for_state(accepted, "done")
    assert [turn_of(accepted).takeovers for accepted in going_on] == [1, 1, 1, 1]
    # Its start is set by the claim, and the turns taken over keep theirs; so it is compared with their ends.
    began = turn_of(queued).started_at
    ended = sorted(turn.ended_at for each in going_on if (turn := turn_of(each)).ended_at is not None)
    assert began is not None
    assert sum(end <= began for end in ended) >= 2
    assert full(Session.objects.get(pk=turn_of(queued).session_id))[-1] == ("assistant", "after them")


def test_clients_of_a_deleted_session_delay_no_round(alice: World, settings: Any) -> None:
    session = with_vanished_client(alice)
    Session.objects.filter(pk=session.pk).update(deleted_at=timezone.now())
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    assert connections.leave_vanished() == 0
    SessionClient.objects.update(left_at="2020-01-01T00:00:00Z")
    assert connections.end_grace_periods() == 1
