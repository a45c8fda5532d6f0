"""The races of a turn, made to happen: each test holds one side at the worst moment."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.spec import AgentSpec, Price
from sessions_app.core import turns
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import history, stored_messages
from sessions_app.core.sessions import connections, inbox
from sessions_app.core.turns import ClientResult, Decision, Stop, stopping
from sessions_app.core.worker import runner
from sessions_app.core.worker.sweep import Sweeper
from sessions_app.core.worker.worker import Worker
from sessions_app.models import AgentDefinition, ClientPresence, Tenant, ToolCall, Turn, TurnState
from tests.core import tools
from tests.core.conftest import (
    World,
    claim_one,
    insert_call,
    kinds,
    lease_is_over,
    locked,
    somebody_waits_for_a_lock,
    turn_of,
    wait_for,
    wait_for_state,
)
from tests.core.threads import at_once, errors_of, in_thread
from tests.core.turns.test_turns import READ_LOG, full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text


class Held:
    """Holds a run at its attempt to leave the turn waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        original = runner.Run.wait

        async def wait(run: runner.Run) -> bool:
            self.entered.set()
            await asyncio.to_thread(self.go.wait, 90)
            return await original(run)

        monkeypatch.setattr(runner.Run, "wait", wait)


@pytest.mark.parametrize("answer", ["grant", "deny", "result"])
def test_an_answer_just_before_the_turn_waits_is_not_missed(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    tools.forget()
    held = Held(monkeypatch)
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}], client_tools=[READ_LOG])
    asked = call("read_log", {}, id="c") if answer == "result" else call("add_one", {"n": 1}, id="c")
    accepted = alice.say(session, model.script([asked], [text("done")]))
    assert held.entered.wait(90)
    if answer == "result":
        with turns.answering(alice.caller, session) as open_calls:
            open_calls.answer([ClientResult(0, "c", "calm")])
    else:
        decision = Decision(approved=answer == "grant", reason="" if answer == "grant" else "no")
        turns.confirm(alice.caller, session, accepted.public_id, "c", decision, dispatched=None)
    assert turn_of(accepted).state == "running"
    held.go.set()
    turn = wait_for_state(accepted, "done")
    assert turn.run == 1, "the run went on by itself"
    said = {"grant": "2", "deny": "Tool call denied: no", "result": "calm"}[answer]
    assert ("tool", said) in full(session)
    assert tools.runs == ([("add_one", 1)] if answer == "grant" else [])
    assert "run_paused" not in kinds(session)


def test_a_grant_runs_its_tool_while_another_still_runs(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    tools.forget()
    start_worker()
    session = alice.session(tools=[{"name": "block", "trust": True}, {"name": "add_one"}])
    script = model.script([call("block", {"n": 1}, id="slow"), call("add_one", {"n": 1}, id="asked")], [text("done")])
    accepted = alice.say(session, script)
    assert tools.entered.wait(90)
    turns.confirm(alice.caller, session, accepted.public_id, "asked", Decision(approved=True), dispatched=None)
    wait_for(lambda: ("add_one", 1) in tools.runs, "the granted tool ran beside the slow one")
    tools.release.set()
    wait_for_state(accepted, "done")


def test_a_message_that_waits_for_a_pausing_run_closes_the_calls_of_that_run(alice: World, on_postgres: bool) -> None:
    """Without a result for each call the vendor would refuse the session from then on."""
    if not on_postgres:
        pytest.skip("SQLite has one writer: nothing can come in between")
    session = alice.session(client_tools=[READ_LOG])
    paused = alice.say(session, "first")
    assert claim_one("w") is not None

    accepted: list[turns.Accepted] = []
    with transaction.atomic():
        # As the run's last commit point, which does not lock the session.
        Turn.objects.filter(pk=paused.turn_id).update(state="waiting")
        insert_call(session, paused, "c", "read_log", runner="client")
        second = in_thread(lambda: accepted.append(alice.say(session, "second")))
        wait_for(somebody_waits_for_a_lock, "the second message waits for the turn's row")
    second.join(90)
    assert len(accepted) == 1
    assert turn_of(paused).state == "cancelled"
    assert ToolCall.objects.get(session=session).state == "denied"
    assert [role for role, _ in full(session)] == ["user", "tool", "user"]


def test_two_answers_to_one_call_count_once(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    tools.forget()
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}])
    accepted = alice.say(session, model.script([call("add_one", {"n": 1}, id="c")], [text("done")]))
    wait_for_state(accepted, "waiting")

    def decide() -> None:
        turns.confirm(alice.caller, session, accepted.public_id, "c", Decision(approved=True), dispatched=None)

    assert errors_of(at_once(decide, decide, decide)) == ["NotPossible", "NotPossible", "done"]
    wait_for_state(accepted, "done")
    assert tools.runs == [("add_one", 1)]


def test_deltas_that_are_stored_while_a_cancel_is_written_are_in_the_history(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer: nothing can come in between")
    start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([text("seen "), gate("more"), text("late"), gate("never")]))
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    original = journal.lock_counter

    def lock_counter(tenant: int, *, waiting: bool = True) -> None:
        model.open_gate("more")
        wait_for(lambda: kinds(session).count("text_delta") == 2, "words that came in between")
        original(tenant, waiting=waiting)

    monkeypatch.setattr(journal, "lock_counter", lock_counter)
    turns.cancel(alice.caller, session)
    assert full(session)[-1] == ("assistant", "seen late")
    read = journal.read_session(session.tenant_id, session.pk, 0)
    done = [exact_json.loads(event.data)["text"] for event in read.events if event.kind == "text_done"]
    assert done == ["seen late"]
    assert turn_of(accepted).state == "cancelled"


def test_nothing_of_a_cancelled_run_is_stored_afterwards(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "tell_worker", lambda stopped: None)
    start_worker()
    session = alice.session()
    script = model.script([text("seen"), gate("more"), text("too late"), gate("never")])
    accepted = alice.say(session, script)
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    assert turns.stop(accepted.turn_id, Stop(cause="client", reason="end_turn")) is not None
    model.open_gate("more")
    # Nobody told the worker; it finds out by itself, from a refused write or its sweep.
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"
    assert kinds(session)[-1] == "turn_cancelled"
    assert full(session)[-1] == ("assistant", "seen")


def test_a_cancel_stops_its_turn_and_never_the_next(alice: World) -> None:
    session = alice.session()
    first = alice.say(session, "one")
    assert turns.stop(first.turn_id, Stop(cause="client", reason="end_turn")) is not None
    second = alice.say(session, "two")
    assert turns.stop(first.turn_id, Stop(cause="client", reason="end_turn")) is None
    assert turn_of(second).state == "queued"


def test_many_workers_claim_each_turn_once(alice: World, bob: World) -> None:
    accepted = [alice.say(alice.session(), "x") for _ in range(6)] + [bob.say(bob.session(), "y") for _ in range(2)]
    claimed: list[Any] = []

    def claim_all(name: str) -> None:
        while True:
            claims = turns.claim(name)
            claimed.extend(claims.runs)
            # A claim that skipped turns left some in the queue.
            if not claims.runs and not claims.skipped:
                return

    assert errors_of(at_once(*(partial(claim_all, f"w{number}") for number in range(4)))) == ["done"] * 4
    assert sorted(one.turn_id for one in claimed) == sorted(one.turn_id for one in accepted)
    assert set(Turn.objects.values_list("state", flat=True)) == {"running"}


def test_the_tenant_with_fewer_live_runs_comes_first(alice: World, bob: World) -> None:
    for _ in range(3):
        alice.say(alice.session(), "x")
    of_bob = bob.say(bob.session(), "y")
    first = claim_one("w")
    assert first is not None
    assert first.tenant == alice.caller.tenant, "nobody runs: the oldest is first"
    second = claim_one("w")
    assert second is not None
    assert second.turn_id == of_bob.turn_id, "bob has waited less but runs nothing"


def test_a_queue_that_is_claimed_at_once_is_as_fair_as_turn_by_turn(alice: World, bob: World) -> None:
    of_alice = [alice.say(alice.session(), "x") for _ in range(4)]
    of_bob = [bob.say(bob.session(), "y") for _ in range(2)]
    claimed = {one.turn_id for one in turns.claim("w", 4).runs}
    assert claimed == {each.turn_id for each in (*of_alice[:2], *of_bob)}
    rest = {one.turn_id for one in turns.claim("w", 4).runs}
    assert rest == {each.turn_id for each in of_alice[2:]}


def counter_held(world: World) -> AbstractContextManager[None]:
    return locked(lambda: journal.lock_counter(world.caller.tenant))


def test_a_locked_counter_of_one_tenant_delays_no_other_tenants_claims(alice: World, bob: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    of_alice = alice.say(alice.session(), "x")
    of_bob = bob.say(bob.session(), "y")
    with counter_held(alice):
        claims = turns.claim("w", 4)
    assert [one.turn_id for one in claims.runs] == [of_bob.turn_id]
    assert claims.skipped
    assert [one.turn_id for one in turns.claim("w", 4).runs] == [of_alice.turn_id]


def test_an_agent_first_used_by_a_tenant_with_a_locked_counter_can_be_used_by_others(
    alice: World, bob: World, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    of_alice, of_bob = alice.session(), bob.session()
    with counter_held(alice):
        waiting = in_thread(lambda: alice.say(of_alice, "x"))
        wait_for(AgentDefinition.objects.exists, "the agent's definition is stored")
        bob.say(of_bob, "y")
        assert not Turn.objects.filter(session=of_alice).exists()
    waiting.join(90)
    assert Turn.objects.filter(session=of_alice).exists()


def test_an_agent_first_used_by_a_queued_message_of_a_tenant_with_a_locked_counter_can_be_used_by_others(
    alice: World, bob: World, agents: Callable[..., AgentSpec], on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    of_alice, of_bob = alice.session(), bob.session()
    first = alice.say(of_alice, "x")
    (claimed,) = turns.claim("w").runs
    message = UserMessage("next")
    inbox.put(alice.caller, of_alice, "queued", "m1", message, dispatched=None)
    before = AgentDefinition.objects.count()
    agents(instructions="As redefined.")
    ended = Happening(Kind.TURN_ENDED, {"turn": first.public_id, "run": 1, "in_run": True, "reason": "end_turn"})
    over = history.turn_ended(claimed.turn_id, claimed.fence, history.End(TurnState.DONE, "end_turn", "", None))
    with counter_held(alice):
        waiting = in_thread(lambda: turns.finish(claimed, "sailor", [ended], [over]))
        wait_for(lambda: AgentDefinition.objects.count() > before, "the new definition is stored")
        bob.say(of_bob, "y")
        assert turn_of(first).state == "running"
    waiting.join(90)
    assert turn_of(first).state == "done"
    assert Turn.objects.filter(session=of_alice, state="queued").exists()


def test_a_locked_presence_row_of_one_tenant_delays_no_other_tenants_renewal(alice: World, bob: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    for world, name in ((alice, "a"), (bob, "b")):
        connections.connected(world.caller, name, f"conn_{name}", resumed=False)
    ClientPresence.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    before = dict(ClientPresence.objects.values_list("pk", "seen_at"))
    with locked(lambda: ClientPresence.objects.select_for_update().get(pk="conn_a")):
        assert connections.renew(["conn_a", "conn_b", "conn_c"]) == {"conn_c"}
    after = dict(ClientPresence.objects.values_list("pk", "seen_at"))
    assert after["conn_a"] == before["conn_a"]
    assert after["conn_b"] > before["conn_b"]


def test_a_locked_session_tail_of_one_tenant_delays_no_other_tenant(alice: World, bob: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    session = alice.session()
    of_alice, of_bob = alice.say(session, "x"), bob.say(bob.session(), "y")

    def lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("select 1 from session_tail where session_id = %s for update", [session.pk])

    with locked(lock):
        claims = turns.claim("w", 4)
    assert [one.turn_id for one in claims.runs] == [of_bob.turn_id]
    assert claims.skipped
    assert [one.turn_id for one in turns.claim("w", 4).runs] == [of_alice.turn_id]


@pytest.mark.parametrize("said", [False, True])
def test_a_locked_counter_of_one_tenant_delays_no_other_tenants_take_over(
    alice: World, bob: World, settings: Any, on_postgres: bool, said: bool
) -> None:
    """``said``: its dead run had begun to speak, so that it is ended, not gone on with."""
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    settings.AGENTHOST_LEASE_SECONDS = 0.0
    of_alice, of_bob = alice.say(alice.session(), "x"), bob.say(bob.session(), "y")
    assert len(turns.claim("dead", 4).runs) == 2
    settings.AGENTHOST_LEASE_SECONDS = 90.0
    if said:
        with journal.transaction() as tx:
            for happening in (
                Happening(Kind.STEP_STARTED, {"turn": of_alice.public_id, "step": 1}),
                Happening(Kind.TEXT_OPENED, {"turn": of_alice.public_id, "step": 1, "part": "1.0"}),
                Happening(Kind.TEXT_DELTA, {"turn": of_alice.public_id, "step": 1, "part": "1.0", "delta": "half"}),
            ):
                tx.append(NewEvent(alice.caller.tenant, turn_of(of_alice).session_id, happening, fence=turn_of(of_alice).fence))
    sweeper = Sweeper("w", _in_contact_since=float("-inf"))
    with counter_held(alice):
        taken = sweeper.take_next()
        assert taken is not None
        assert taken.turn_id == of_bob.turn_id
        Turn.objects.filter(pk=of_bob.turn_id).update(lease_expires_at=timezone.now() + timedelta(hours=1))
        assert sweeper.take_next() is None
        assert turn_of(of_alice).state == "running"
    taken = sweeper.take_next()
    if said:
        assert taken is None
        assert turn_of(of_alice).state == "error"
    else:
        assert taken is not None
        assert taken.turn_id == of_alice.turn_id


def test_a_locked_counter_of_one_tenant_delays_no_other_tenants_deadlines(alice: World, bob: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    of_alice, of_bob = alice.say(alice.session(), "x"), bob.say(bob.session(), "y")
    assert len(turns.claim("gone", 4).runs) == 2
    Turn.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    with counter_held(alice):
        assert turns.stop_overdue() == 1
        assert (turn_of(of_alice).state, turn_of(of_bob).state) == ("running", "cancelled")
    assert turns.stop_overdue() == 1
    assert turn_of(of_alice).state == "cancelled"


def test_a_turn_whose_session_has_no_tail_delays_no_other(alice: World) -> None:
    broken, sound = alice.say(alice.session(), "x"), alice.say(alice.session(), "y")
    with connection.cursor() as cursor:
        cursor.execute("delete from session_tail where session_id = %s", [turn_of(broken).session_id])
    assert [one.turn_id for one in turns.claim("w", 4).runs] == [sound.turn_id]


def test_a_worker_leaves_turns_of_a_newer_format_alone(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    Turn.objects.filter(pk=accepted.turn_id).update(format=99)
    assert claim_one("w") is None


def test_a_turn_is_stored_in_the_oldest_format_that_its_agents_definition_allows(alice: World) -> None:
    """So that workers of the release before leave alone what they could not run, and nothing else."""
    (plain,) = registry.agents().values()
    with registry.use([plain]):
        first = alice.say(alice.session(), "x")
    with registry.use([dataclasses.replace(plain, prices={"m": Price(1.0, 2.0)})]):
        second = alice.say(alice.session(), "y")
    assert (turn_of(first).format, turn_of(second).format) == (1, 2)


def test_an_answer_gives_a_turn_the_format_of_the_definition_that_it_continues_with(alice: World) -> None:
    (plain,) = registry.agents().values()
    with registry.use([plain]):
        session = alice.session(client_tools=[READ_LOG])
        asked = alice.say(session, "x")
    insert_call(session, asked, "c", "read_log", runner="client")
    Turn.objects.filter(pk=asked.turn_id).update(state="waiting")
    with registry.use([dataclasses.replace(plain, prices={"m": Price(1.0, 2.0)})]):
        alice.answer(session, ClientResult(0, "c", "calm"))
    assert turn_of(asked).format == 2
    Turn.objects.filter(pk=asked.turn_id).update(state="waiting", format=7)
    insert_call(session, asked, "d", "read_log", runner="client")
    with registry.use([plain]):
        alice.answer(session, ClientResult(0, "d", "calm"))
    assert turn_of(asked).format == 7


def test_a_turn_accepted_while_its_tenant_is_suspended_never_runs(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    Tenant.objects.filter(pk=alice.caller.tenant).update(suspended_at=timezone.now())
    assert claim_one("w") is None
    assert turns.stop_suspended() == 1
    assert turn_of(accepted).state == "cancelled"


def test_a_takeover_and_a_cancel_at_once_do_not_wait_for_each_other(
    alice: World, settings: Any, monkeypatch: pytest.MonkeyPatch, on_postgres: bool
) -> None:
    """Who ends a turn refers to its session's row without locking it; whoever has locked that row waits for the turn."""
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    settings.AGENTHOST_LEASE_SECONDS = 0.0
    session = alice.session()
    accepted = alice.say(session, "x")
    claimed = claim_one("dead")
    assert claimed is not None
    with journal.transaction() as tx:
        for happening in (
            Happening(Kind.STEP_STARTED, {"turn": accepted.public_id, "step": 1}),
            Happening(Kind.TEXT_OPENED, {"turn": accepted.public_id, "step": 1, "part": "1.0"}),
            Happening(Kind.TEXT_DELTA, {"turn": accepted.public_id, "step": 1, "part": "1.0", "delta": "half"}),
        ):
            tx.append(NewEvent(session.tenant_id, session.pk, happening, fence=claimed.fence))
    receipts: list[turns.CancelReceipt] = []
    original = journal.lock_counter
    threads: list[threading.Thread] = []

    def cancel() -> None:
        try:
            receipts.append(turns.cancel(alice.caller, session))
        finally:
            connection.close()

    def someone_waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_locks l join pg_database d on d.datname = current_database() where not granted"
            )
            return bool(cursor.fetchone()[0])

    def lock_counter(tenant: int, *, waiting: bool = True) -> None:
        monkeypatch.setattr(journal, "lock_counter", original)
        threads.append(threading.Thread(target=cancel))
        threads[0].start()
        wait_for(someone_waits, "the cancel has the session and waits for the turn")
        original(tenant, waiting=waiting)

    monkeypatch.setattr(journal, "lock_counter", lock_counter)
    assert isinstance(turns.take_over("two"), turns.Ended)
    threads[0].join(90)
    assert receipts == [turns.CancelReceipt(cancelled=False)]
    assert turn_of(accepted).error == "interrupted"
    assert full(session)[-1] == ("assistant", "half")


# --- death ---


def test_a_run_whose_worker_died_before_any_text_is_repeated(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    session = alice.session()
    script = model.script([text("here ", "I am")])
    accepted = alice.say(session, script)
    dead = claim_one("dead")
    assert dead is not None
    lease_is_over(accepted)
    start_worker()
    turn = wait_for_state(accepted, "done")
    assert turn.takeovers == 1
    assert full(session)[-1] == ("assistant", "here I am")


def test_a_run_that_died_while_it_streamed_text_ends_with_an_error_and_keeps_the_text(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    session = alice.session()
    accepted = alice.say(session, model.script([text("half an "), gate("never")]))
    worker = start_worker()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    Turn.objects.filter(pk=accepted.turn_id).update(worker="dead", lease_expires_at="2020-01-01T00:00:00Z")
    assert worker.name
    turn = wait_for_state(accepted, "error")
    assert turn.error == "interrupted"
    assert full(session)[-1] == ("assistant", "half an ")


@pytest.mark.parametrize(("tool", "result"), [("block", "Tool execution failed: interrupted, it may have run"), ("again", "5")])
def test_a_tool_that_was_running_when_its_worker_died(
    alice: World,
    agents: Callable[..., Any],
    start_worker: Callable[[], Worker],
    model: ModelServer,
    tool: str,
    result: str,
) -> None:
    tools.forget()
    from agents_app.spec import ToolSpec

    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    source = "python:tests.core.tools:"
    agents(
        tools=(
            ToolSpec("block", source + "add_one", parameters=number, expose=False),
            ToolSpec("again", source + "add_one", parameters=number, expose=False, idempotent=True),
        )
    )
    session = alice.session()
    script = model.script([call(tool, {"n": 4}, id="c")], [text("done")])
    accepted = alice.say(session, script)
    claimed = claim_one("dead")
    assert claimed is not None
    asyncio.run(_die_while_the_tool_runs(claimed))
    lease_is_over(accepted)
    start_worker()
    turn = wait_for_state(accepted, "done")
    assert turn.takeovers == 1
    assert ("tool", result) in full(session)
    assert tools.runs == ([("add_one", 4)] if tool == "again" else [])


async def _die_while_the_tool_runs(claimed: turns.Claimed) -> None:
    """Drive a run up to the commit point before its tool, and stop there as kill -9 would."""
    from agents_app.fair.threads import FairPool
    from sessions_app.core.base import database
    from sessions_app.core.worker import loading

    class Died(BaseException):
        pass

    class Dying(runner.Run):
        async def call_running(self, each: Any) -> None:
            await super().call_running(each)
            raise Died

    writer = journal.Writer()
    await writer.start()
    try:
        loaded = (await database.run(loading.load, [claimed]))[claimed.turn_id]
        assert isinstance(loaded, loading.Loaded)
        with pytest.raises(Died):
            await Dying(claimed, loaded, writer, FairPool(2)).drive()
    finally:
        await writer.close()


def test_a_turn_is_taken_over_twice_at_most(alice: World, quick: None, settings: Any) -> None:
    settings.AGENTHOST_LEASE_SECONDS = 0.0
    session = alice.session()
    accepted = alice.say(session, "x")
    assert claim_one("one") is not None
    assert isinstance(turns.take_over("two"), turns.Claimed)
    assert isinstance(turns.take_over("three"), turns.Claimed)
    assert isinstance(turns.take_over("four"), turns.Ended)
    turn = turn_of(accepted)
    assert (turn.state, turn.error) == ("error", "interrupted")
    assert turns.take_over("five") is None
    assert [line.role for line in stored_messages.read(session, "full")] == ["user"]


def test_a_run_that_lost_its_turn_ends_no_other_runs_turn(alice: World, settings: Any) -> None:
    """An old run's failure is not the new run's; and what waits for its client is over for the run that left it."""
    settings.AGENTHOST_LEASE_SECONDS = 0.0
    accepted = alice.say(alice.session(), "x")
    old = claim_one("one")
    new = turns.take_over("two")
    assert isinstance(old, turns.Claimed)
    assert isinstance(new, turns.Claimed)
    failure = Stop(cause="internal", reason="error")
    assert turns.stop(accepted.turn_id, failure, fence=old.fence) is None
    assert turn_of(accepted).state == "running"
    Turn.objects.filter(pk=accepted.turn_id).update(state="waiting")
    assert turns.stop(accepted.turn_id, failure, fence=new.fence) is None
    Turn.objects.filter(pk=accepted.turn_id).update(state="running")
    assert turns.stop(accepted.turn_id, failure, fence=new.fence) is not None
    assert turn_of(accepted).error == "internal"
