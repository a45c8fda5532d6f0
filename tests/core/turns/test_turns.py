"""What becomes of a turn, from its acceptance to its end, with a real worker and a real database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents_app import exact_json
from agents_app.runtime.interface import Limits
from agents_app.spec import ToolSpec
from sessions_app.core import turns
from sessions_app.core.base.errors import AgentGone, InvalidInput, NotPossible, SessionNotFound, TurnAlreadyRunning
from sessions_app.core.log import journal
from sessions_app.core.records import stored_messages
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.sessions import deleting, listing
from sessions_app.core.turns import ClientResult, Permission, stopping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Compaction, Message, Session, ToolCall, Turn
from tests.core import tools
from tests.core.conftest import World, claim_one, insert_call, kinds, streamed_text, turn_of, wait_for, wait_for_state
from tests.core.dispatching import events
from tests.core.threads import at_once, errors_of
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, drop, finish, gate, hang, text, thinking, usage

READ_LOG = {"name": "read_log", "description": "Reads the log", "parameters": {"type": "object", "properties": {}}}

pytestmark = pytest.mark.usefixtures("fresh_tools")


def full(session: Session) -> list[tuple[str, object]]:
    return [(line.role, exact_json.loads(line.content)) for line in stored_messages.read(session, "full")]


# --- the plain life of a turn ---


def test_a_turn_streams_its_text_and_ends(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session()
    script = model.script([thinking("Let me ", "see."), text("Good ", "morning."), usage(10, 4)])
    turn = wait_for_state(alice.say(session, script), "done")
    assert (turn.stop_reason, turn.input_tokens, turn.output_tokens, turn.step) == ("end_turn", 10, 4, 1)
    assert full(session) == [
        ("user", script),
        ("assistant", [{"type": "thinking", "thinking": "Let me see."}, {"type": "text", "text": "Good morning."}]),
    ]
    happened = kinds(session)
    assert happened[:5] == ["session_created", "turn_started", "title_changed", "run_started", "step_started"]
    assert happened[-4:] == ["thinking_done", "text_done", "step_done", "turn_ended"]
    parts = exact_json.loads(turn.parts)
    assert [(part["kind"], part["text"]) for part in parts] == [("thinking", "Let me see."), ("text", "Good morning.")]


@pytest.mark.rule("A52")
def test_the_model_gets_instructions_history_and_tools(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(
        tools=[{"name": "add_one"}],
        client_tools=[READ_LOG],
        options={"tone": "like {key}"},
        seed=[{"role": "system", "content": "S"}],
    )
    script = model.script([text("ok")])
    wait_for_state(alice.say(session, script), "done")
    request = model.requests_of(script)[0]
    assert [message["role"] for message in request.messages] == ["system", "system", "user"]
    assert request.messages[0]["content"] == "Speak like {key}."
    assert sorted(request.tool_names) == ["add_one", "hidden", "read_log"]
    assert request.api_key == "sk-default"


@pytest.mark.rule("A78")
def test_a_second_turn_while_one_runs_is_refused(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session()
    script = model.script([text("a"), gate("hold"), text("b")])
    first = alice.say(session, script)
    model.wait_gate("hold")
    with pytest.raises(TurnAlreadyRunning):
        alice.say(session, "me too")
    model.open_gate("hold")
    wait_for_state(first, "done")
    assert [role for role, _ in full(session)] == ["user", "assistant"]


def test_of_two_turns_started_at_once_one_is_refused(alice: World) -> None:
    session = alice.session()
    assert errors_of(at_once(*[lambda: alice.say(session, "hello")] * 2)) == ["TurnAlreadyRunning", "done"]
    assert Message.objects.filter(session=session).count() == 1


# --- tools ---


@pytest.mark.rule("A63", "A70", "A65")
def test_mixed_calls_run_wait_and_go_on(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}, {"name": "blow_up"}], client_tools=[READ_LOG])
    script = model.script(
        [
            text("On it."),
            call("read_log", {}, id="k1"),
            call("add_one", {"n": 1}, id="k3"),
            call("blow_up", {"n": 2}, id="k4"),
        ],
        [text("All set.")],
    )
    accepted = alice.say(session, script)
    wait_for_state(accepted, "waiting")
    assert tools.runs == [("add_one", 1)]
    resumed = alice.answer(session, ClientResult(0, "k1", "calm"), Permission(1, "k4", granted=True))
    assert resumed.public_id == accepted.public_id
    turn = wait_for_state(accepted, "done")
    assert turn.run == 2
    lines = [(line.role, line.tool_call_id) for line in stored_messages.read(session, "full")]
    assert lines == [
        ("user", None),
        ("assistant", None),
        ("tool", "k3"),
        ("tool", "k1"),
        ("tool", "k4"),
        ("assistant", None),
    ]
    texts = {line.tool_call_id: line.content for line in stored_messages.read(session, "full")}
    assert texts["k4"] == '"Tool execution failed: the tool raised an error"'
    assert [line.role for line in stored_messages.of_run(turn.pk, 1)] == ["assistant", "tool"]
    assert [line.role for line in stored_messages.of_run(turn.pk, 2)] == ["tool", "assistant"]


@pytest.mark.rule("A64", "A66")
def test_a_denied_tool_never_runs(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}])
    script = model.script([call("add_one", {"n": 1}, id="c")], [text("Then not.")])
    accepted = alice.say(session, script)
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, "c", granted=False, reason="no need"))
    wait_for_state(accepted, "done")
    assert tools.runs == []
    assert ("tool", "Tool call denied: no need") in full(session)


@pytest.mark.rule("A73", "A74")
def test_a_call_nobody_can_serve_is_answered_by_the_server(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    script = model.script(
        [call("nowhere", {"a": 1}, id="x"), call("add_one", {"n": 1}, id="x"), call("hidden", "[1]", id="y")], [text("ok")]
    )
    wait_for_state(alice.say(session, script), "done")
    results = {line.tool_call_id: line.content for line in stored_messages.read(session, "full") if line.role == "tool"}
    assert results.pop("x") == '"Tool not found: nowhere"'
    assert results.pop("y") == '"Tool execution failed: the arguments are not a JSON object"'
    assert list(results.values()) == ['"Tool not found: add_one"']
    assert tools.runs == []


@pytest.mark.rule("A77")
def test_partial_results_leave_the_turn_waiting(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(client_tools=[READ_LOG])
    script = model.script([call("read_log", {}, id="p1"), call("read_log", {}, id="p2")], [text("done")])
    accepted = alice.say(session, script)
    wait_for_state(accepted, "waiting")
    second = alice.answer(session, ClientResult(0, "p1", "calm"))
    wait_for(lambda: turn_of(accepted).state == "waiting" and turn_of(accepted).run == 2, "waiting again")
    assert len(model.requests_of(script)) == 1
    assert stored_messages.of_run(second.turn_id, 2) == []
    alice.answer(session, ClientResult(0, "p2", "windy"))
    wait_for_state(accepted, "done")


@pytest.mark.rule("A76")
def test_a_user_message_closes_the_calls_of_a_waiting_turn(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}], client_tools=[READ_LOG])
    first = alice.say(session, model.script([call("read_log", {}, id="p1"), call("add_one", {"n": 1}, id="p2")]))
    wait_for_state(first, "waiting")
    second = alice.say(session, model.script([text("Fine.")]))
    wait_for_state(second, "done")
    assert turn_of(first).state == "cancelled"
    note = "Tool call denied: the user sent a new message instead"
    assert [content for role, content in full(session) if role == "tool"] == [note, note]
    assert [line.tool_call_id for line in stored_messages.of_run(second.turn_id, 1)] == ["p2", None]
    with pytest.raises(InvalidInput):
        alice.answer(session, ClientResult(0, "p1", "late"))


@pytest.mark.rule("A79")
def test_wrong_answers_change_nothing(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}], client_tools=[READ_LOG])
    accepted = alice.say(session, model.script([call("read_log", {}, id="c"), call("add_one", {"n": 1}, id="s")], [text("ok")]))
    wait_for_state(accepted, "waiting")
    before = full(session)
    for wrong in (
        [ClientResult(0, "unknown", "x")],
        [ClientResult(0, "c", "x"), ClientResult(1, "c", "y")],
        [Permission(0, "c", granted=True)],
        [ClientResult(0, "s", "known to me"), Permission(1, "s", granted=True)],
    ):
        with pytest.raises(InvalidInput):
            alice.answer(session, *wrong)
        assert full(session) == before
        assert turn_of(accepted).state == "waiting"
    alice.answer(session, Permission(0, "c", granted=False), ClientResult(1, "s", "two"))
    wait_for_state(accepted, "done")
    assert tools.runs == []


@pytest.mark.rule("A90")
def test_a_seed_may_have_open_calls_at_its_end(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    script = model.script([text("never")], [text("Thanks.")])
    blocks = [
        {"type": "tool_use", "toolCallId": "a", "name": "read_log", "input": {}},
        {"type": "tool_use", "toolCallId": "b", "name": "gone", "input": {}},
        {"type": "tool_use", "toolCallId": "c", "name": "add_one", "input": {"n": 4}},
        {"type": "tool_use", "toolCallId": "d", "name": "hidden", "input": {"n": 4}},
        {"type": "tool_use", "toolCallId": "e", "name": "block", "input": {"n": 4}},
    ]
    session = alice.session(
        tools=[{"name": "add_one"}],
        client_tools=[READ_LOG],
        seed=[{"role": "user", "content": script}, {"role": "assistant", "content": blocks}],
    )
    accepted = alice.answer(
        session, ClientResult(0, "a", "calm"), *(Permission(index, each, granted=True) for index, each in enumerate("bcde", 1))
    )
    wait_for_state(accepted, "done")
    results = {line.tool_call_id: line.content for line in stored_messages.read(session, "full") if line.role == "tool"}
    assert results == {
        "a": '"calm"',
        "b": '"Tool not found: gone"',
        "c": '"5"',
        "d": '"Tool not found: hidden"',
        "e": '"Tool not found: block"',
    }
    assert tools.runs == [("add_one", 4)]


@pytest.mark.rule("A87")
def test_too_many_steps_end_with_error(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session()
    script = model.script(*[[call("hidden", {"n": step})] for step in range(10)])
    turn = wait_for_state(alice.say(session, script), "error")
    assert (turn.error, turn.step) == ("too_many_steps", 6)
    assert len(tools.runs) == 6


@pytest.mark.rule("A86", "A100")
def test_an_answer_without_end_is_cut_at_the_limit_and_the_session_goes_on(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Settings
) -> None:
    limit = settings.AGENTHOST_MESSAGE_BYTES = 600_000
    start_worker()
    session = alice.session()
    script = model.script([text(*["x" * 60_000] * 300)])
    turn = wait_for_state(alice.say(session, script), "done")
    assert turn.stop_reason == "max_tokens"
    said = str(full(session)[-1][1])
    assert limit - 1_000 < len(said) <= limit
    # Its deltas, and the text once more as a whole.
    stored = sum(len(event.data) for event in journal.read_session(session.tenant_id, session.pk, 0, limit=10_000).events)
    assert stored < 2.1 * limit
    assert model.wait_ended(model.wait_request(script)) == "closed"
    wait_for_state(alice.say(session, model.script([text("again")])), "done")


@pytest.mark.rule("A87")
def test_a_turns_size_counts_over_its_runs_and_its_end_says_so(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Settings
) -> None:
    settings.AGENTHOST_TURN_BYTES = 100_000
    start_worker()
    session = alice.session()
    overrides = Overrides(client_tools=[READ_LOG])
    script = model.script([text("x" * 60_000), call("read_log", id="a")], [text("y" * 60_000)])
    accepted = alice.say(session, script, overrides=overrides)
    wait_for_state(accepted, "waiting")
    turn = wait_for_state(alice.answer(session, ClientResult(0, "a", "calm")), "error")
    assert (turn.error, turn.stop_reason) == ("turn_too_large", "error")
    assert sum(len(str(content)) for role, content in full(session) if role == "assistant") < 100_500
    settings.AGENTHOST_TURN_BYTES = 10_000_000
    wait_for_state(alice.say(session, model.script([text("again")])), "done")


# --- the provider ---


@pytest.mark.rule("A85")
def test_the_text_before_a_dropped_provider_connection_is_kept(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    turn = wait_for_state(alice.say(session, model.script([text("The tide is "), call("hidden", {"n": 1}), drop()])), "error")
    assert turn.error == "provider_failed"
    assert full(session)[1:] == [("assistant", "The tide is ")]
    assert tools.runs == []
    wait_for_state(alice.say(session, model.script([text("again")])), "done")


@pytest.mark.rule("A86")
def test_a_token_limit_keeps_the_text_and_drops_the_calls(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    turn = wait_for_state(alice.say(session, model.script([text("long"), call("hidden", {"n": 1}), finish("length")])), "done")
    assert turn.stop_reason == "max_tokens"
    assert full(session)[1:] == [("assistant", "long")]


def test_a_run_over_its_limit_ends_with_error(
    alice: World, agents: Callable[..., object], start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    # Time enough for the first word, also on a slow machine.
    agents(limits=Limits(run=4.0))
    start_worker()
    session = alice.session()
    script = model.script([text("a"), hang()])
    turn = wait_for_state(alice.say(session, script), "error")
    assert turn.error == "limit"
    assert full(session)[1:] == [("assistant", "a")]
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"


# --- stopping ---


@pytest.mark.rule("A121")
def test_cancel_closes_the_provider_and_keeps_the_text(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_PROVIDER_CLOSE_WAIT", 60.0)
    start_worker()
    session = alice.session()
    script = model.script([text("so ", "far"), gate("never"), text("no")])
    accepted = alice.say(session, script)
    model.wait_gate("never")
    wait_for(lambda: streamed_text(session) == "so far", "both words are stored")
    receipt = turns.cancel(alice.caller, session)
    assert (receipt.cancelled, receipt.provider_closed) == (True, True)
    assert turn_of(accepted).state == "cancelled"
    assert full(session)[1:] == [("assistant", "so far")]
    assert kinds(session)[-2:] == ["text_done", "turn_cancelled"]
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"
    assert turns.cancel(alice.caller, session).cancelled is False
    wait_for_state(alice.say(session, model.script([text("next")])), "done")


@pytest.mark.rule("A121")
def test_cancel_stops_a_tool_that_hangs(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "block", "trust": True}])
    accepted = alice.say(session, model.script([call("block", {"n": 1}, id="b")], [text("never")]))
    assert tools.entered.wait(90)
    assert turns.cancel(alice.caller, session).cancelled is True
    assert turn_of(accepted).state == "cancelled"
    assert full(session)[-1] == ("tool", "Tool call denied: cancelled")
    tools.release.set()
    wait_for_state(alice.say(session, model.script([text("next")])), "done")
    assert ToolCall.objects.get(session=session, call_id="b").state == "denied"


@pytest.mark.rule("A121")
def test_a_waiting_turn_and_a_queued_one_can_be_cancelled(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    session = alice.session(client_tools=[READ_LOG])
    queued = alice.say(session, "not yet")
    assert turns.cancel(alice.caller, session) == turns.CancelReceipt(cancelled=True, provider_closed=True)
    assert turn_of(queued).state == "cancelled"
    start_worker()
    waiting = alice.say(session, model.script([call("read_log", {}, id="c")]))
    wait_for_state(waiting, "waiting")
    assert turns.cancel(alice.caller, session).cancelled is True
    (*_, ended) = events(session, "turn_cancelled")
    assert ended[1]["in_run"] is False
    assert full(session)[-1] == ("tool", "Tool call denied: cancelled")


@pytest.mark.rule("A92")
def test_deleting_stops_the_turn_and_removes_the_session(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(options={"key": "sk-mine"})
    script = model.script([text("a"), gate("never"), text("b")])
    alice.say(session, script)
    model.wait_gate("never")
    deleting.delete(alice.caller, session)
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"
    with pytest.raises(SessionNotFound):
        deleting.delete(alice.caller, session)
    assert listing.page(alice.caller, None).items == []


# --- settings ---


@pytest.mark.rule("A43")
def test_a_removed_agent_runs_no_turn(alice: World, agents: Callable[..., object]) -> None:
    session = alice.session()
    agents(name="other")
    with pytest.raises(AgentGone):
        alice.say(session, "hello")
    assert Turn.objects.count() == 0


@pytest.mark.rule("A50", "A82", "A7")
def test_overrides_persist_or_change_nothing(alice: World) -> None:
    session = alice.session(client_tools=[{**READ_LOG, "name": "add_one"}])
    for wrong in (
        Overrides(tool_refs=[{"name": "add_one"}]),
        Overrides(tool_refs=[{"name": "hidden"}]),
        Overrides(options={"tone": "x", "nothing": "y"}),
        Overrides(client_tools=[{**READ_LOG, "name": "hidden"}]),
    ):
        with pytest.raises(InvalidInput):
            alice.say(session, "hi", wrong)
    facts = listing.facts(session)
    assert (facts.tool_refs, facts.options) == (None, {})
    assert Message.objects.count() == 0
    alice.say(session, "hi", Overrides(tool_refs=[{"name": "add_one"}], client_tools=[], options={"key": "s3cret", "tone": "x"}))
    session.refresh_from_db()
    facts = listing.facts(session)
    assert facts.tool_refs == [{"name": "add_one"}]
    assert facts.options == {"key": "***", "tone": "x"}
    assert facts.client_tools == []


def test_another_tenants_session_does_not_exist_for_a_turn(alice: World, bob: World) -> None:
    session = alice.session()
    for act in (
        lambda: bob.say(session, "hi"),
        lambda: bob.answer(session, ClientResult(0, "x", "y")),
        lambda: turns.cancel(bob.caller, session),
        lambda: deleting.delete(bob.caller, session),
    ):
        with pytest.raises(SessionNotFound):
            act()


@pytest.mark.rule("A82", "A45")
def test_a_tool_that_an_operator_named_like_a_clients_takes_its_place(
    alice: World, agents: Callable[..., object], start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """The request that comes next is not to blame for it."""
    tools.forget()
    start_worker()
    session = alice.session(client_tools=[{**READ_LOG, "name": "lookout"}])
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    agents(tools=(ToolSpec("lookout", "python:tests.core.tools:add_one", parameters=number, expose=False),))
    script = model.script([call("lookout", {"n": 1}, id="c")], [text("ok")])
    wait_for_state(alice.say(session, script), "done")
    assert tools.runs == [("add_one", 1)]
    assert model.requests_of(script)[0].tool_names == ["lookout"]
    with pytest.raises(InvalidInput):
        alice.say(session, "hi", Overrides(client_tools=[{**READ_LOG, "name": "lookout"}]))


@pytest.mark.rule("A73")
def test_a_call_that_nobody_can_serve_accepts_no_answer_of_a_client(alice: World) -> None:
    """The run that made it is answering it; a second result would stand beside the first."""
    session = alice.session()
    accepted = alice.say(session, "x")
    assert claim_one("w") is not None
    insert_call(session, accepted, "n", "nowhere", runner="nobody")
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, accepted.public_id, "n", turns.Decision(approved=True), dispatched=None)
    sent = Dispatched("c1", "w1", "", 1, "0.1.0", {"type": "session/toolCallComplete"})
    with pytest.raises(NotPossible):
        turns.complete(
            alice.caller, session, accepted.public_id, "n", turns.Outcome(success=True, message="mine"), dispatched=sent
        )


@pytest.mark.rule("A38")
def test_compaction_leaves_a_call_out_with_its_result_however_far_behind(alice: World) -> None:
    seed: list[dict[str, Any]] = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "c", "name": "read_log", "input": {}}]},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "still waiting"},
        {"role": "tool", "toolCallId": "c", "content": "at last"},
        {"role": "user", "content": "three"},
    ]
    session = alice.session(client_tools=[READ_LOG], seed=seed)
    Compaction.objects.create(tenant_id=session.tenant_id, session=session, covers_through=2, created_at=timezone.now())
    shown = [(line.role, line.content) for line in stored_messages.read(session, "compacted")]
    assert shown == [("user", '"two"'), ("assistant", '"still waiting"'), ("user", '"three"')]
    assert len(full(session)) == 6


def test_a_clients_content_is_in_no_repr() -> None:
    assert "s3cret" not in repr(Overrides(options={"key": "s3cret"}))
    assert "diary" not in repr(ClientResult(0, "c", "my diary"))
