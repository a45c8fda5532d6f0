"""Calls and results that wait for a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.records import clients, history, session_changes
from sessions_app.core.sessions import connections, listing, state
from sessions_app.core.tenancy import access
from sessions_app.core.turns import ClientResult, Decision, Outcome, Permission, call_options
from sessions_app.models import Turn
from tests.core import tools
from tests.core.client_actions import (
    OPEN_FILE,
    ends,
    make,
    said,
    start,
    waiting_call,
)
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.threads import at_once, errors_of
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]


@pytest.mark.rule("R164")
@pytest.mark.rule("R166")
def test_a_call_runs_with_the_input_that_a_user_has_edited(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    confirm = Decision(approved=True, option=call_options.ONCE, input='{"n": 41}')
    for wrong in (replace(confirm, option="nonsense"), replace(confirm, option=call_options.DENY)):
        with pytest.raises(NotPossible):
            turns.confirm(alice.caller, session, "t1", row.call_id, wrong, dispatched=action())
    turns.confirm(alice.caller, session, "t1", row.call_id, confirm, dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 41)]
    granted = [payload for kind, payload in events(session) if kind == "call_granted"]
    assert [(each["option"], each["input"]) for each in granted] == [(call_options.ONCE, '{"n": 41}')]
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.input, part.why, part.option) == ("done", '{"n": 41}', "user-action", call_options.ONCE)
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, "t1", row.call_id, confirm, dispatched=action())


def test_an_edited_input_that_is_no_object_fails_the_call(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=True, input="[1"), dispatched=action())
    ends(session, "t1")
    assert tools.runs == []
    assert said(session)[-2] == ("tool", "Tool execution failed: the arguments are not a JSON object")


@pytest.mark.rule("R165")
def test_the_model_gets_the_reason_and_the_suggestion_of_a_denial(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    denial = Decision(approved=False, how="skipped", reason="too small", suggestion={"text": "use 5"})
    turns.confirm(alice.caller, session, "t1", row.call_id, denial, dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", "Tool call denied: too small The user suggests: use 5")
    (denied,) = [payload for kind, payload in events(session) if kind == "call_denied"]
    assert (denied["how"], denied["suggestion"], "closing" in denied) == ("skipped", {"text": "use 5"}, False)
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.how, part.reason, part.suggestion) == ("ended", "skipped", "too small", {"text": "use 5"})


@pytest.mark.rule("R166")
@pytest.mark.rule("R389")
def test_a_tool_that_was_allowed_in_this_session_asks_no_more(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [call("add_one", {"n": 2})], [text("ok")]))
    row = waiting_call(session, "add_one")
    allow = Decision(approved=True, option=call_options.SESSION)
    turns.confirm(alice.caller, session, "t1", row.call_id, allow, dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1), ("add_one", 2)]
    assert {"name": "add_one", "trust": True} in (listing.facts(access.session(alice.caller, session.public_id)).tool_refs or [])
    whys = [payload["why"] for kind, payload in events(session) if kind == "call_ready"]
    assert whys == ["", "setting"]


@pytest.mark.rule("R389")
def test_with_approval_set_to_auto_no_tool_asks(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [call("add_one", {"n": 2})], [text("ok")]))
    row = waiting_call(session, "add_one")
    session_changes.change_settings(alice.caller, session, options={}, approval="auto", dispatched=action())
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=True), dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1), ("add_one", 2)]


@pytest.mark.rule("R91")
def test_if_two_clients_confirm_a_call_the_first_one_counts(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")

    def confirm(client: str) -> Callable[[], None]:
        word = Decision(approved=True)
        return lambda: turns.confirm(alice.caller, session, "t1", row.call_id, word, dispatched=action(client=client))

    assert errors_of(at_once(confirm("c1"), confirm("c2"))) == ["NotPossible", "done"]
    ends(session, "t1")
    assert tools.runs == [("add_one", 1)]


@pytest.mark.rule("R387")
def test_a_confirmation_can_be_answered_from_either_protocol_once(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    assert [line["name"] for line in said(session)[-1][1]] == ["add_one"]
    alice.answer(session, Permission(0, row.call_id, granted=True))
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=False), dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1)]


def confirming(agents: Callable[..., AgentSpec]) -> AgentSpec:
    spec = agents()
    return agents(tools=tuple(replace(tool, confirm_result=tool.name == "add_one") for tool in spec.tools))


@pytest.mark.rule("R167")
@pytest.mark.parametrize("approved", [True, False])
def test_a_result_waits_for_a_permission_if_its_tool_requires_one(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer, approved: bool
) -> None:
    confirming(agents)
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one", "review")
    ends(session, "t1", "waiting")
    shown = state.read(alice.caller, session)
    assert shown.summary.state == "waiting"
    assert shown.live is not None
    part = shown.live.parts[0].call
    assert part is not None
    assert (part.status, part.content) == ("reviewing", "2")
    assert [payload.get("reviewed") for kind, payload in events(session) if kind == "call_finished"] == [True]
    turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=approved, dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", "2" if approved else history.WITHHELD)
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.how) == (("done", "") if approved else ("ended", "result-denied"))
    with pytest.raises(NotPossible):
        turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=approved, dispatched=action())


@pytest.mark.rule("R387")
def test_a_result_that_waits_is_released_by_a_permission_over_aap(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer
) -> None:
    confirming(agents)
    start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}])
    accepted = alice.say(session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one", "review")
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "waiting", "the turn to wait")
    with pytest.raises(InvalidInput):
        alice.answer(session, ClientResult(0, row.call_id, "3"))
    alice.answer(session, Permission(0, row.call_id, granted=True))
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "done", "the turn's end")
    assert [line for line in said(session) if line[0] == "tool"] == [("tool", "2")]


@pytest.mark.rule("R167", "R184", "R425")
@pytest.mark.parametrize("approved", [True, False])
def test_a_clients_own_result_waits_until_a_client_releases_it(
    alice: World, start_worker: Any, model: ModelServer, approved: bool
) -> None:
    worker = start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    script = model.script([call("open_file", {"path": "a"})], [text("ok")])
    start(alice, session, script)
    row = waiting_call(session, "open_file")
    ends(session, "t1", "waiting")
    outcome = Outcome(success=True, message="Opened", content=[{"type": "text", "text": "inside"}])
    turns.complete(alice.caller, session, "t1", row.call_id, outcome, reviewed=True, dispatched=action())
    # Nothing goes on: the model is asked only when the result is released, by whichever worker there is then.
    assert ends(session, "t1", "waiting").run == 1
    worker.stop(0)
    start_worker()
    shown = state.read(alice.caller, session)
    assert (shown.summary.state, shown.live is not None) == ("waiting", True)
    part = shown.live.parts[0].call if shown.live is not None else None
    assert part is not None
    assert (part.status, part.outcome) == ("reviewing", outcome.document())
    assert len(model.requests_of(script)) == 1
    with pytest.raises(NotPossible):
        turns.complete(alice.caller, session, "t1", row.call_id, outcome, dispatched=action())
    with pytest.raises(InvalidInput):
        alice.answer(session, ClientResult(0, row.call_id, "another"))
    turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=approved, dispatched=action(client="c2"))
    ends(session, "t1")
    told = "inside" if approved else history.WITHHELD
    assert said(session)[-2] == ("tool", told)
    assert model.requests_of(script)[1].messages[-1]["content"] == told
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.how) == (("done", "") if approved else ("ended", "result-denied"))


@pytest.mark.rule("R167", "R387")
def test_a_clients_result_that_waits_is_released_over_aap_too(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file", {"path": "a"})], [text("ok")]))
    row = waiting_call(session, "open_file")
    ends(session, "t1", "waiting")
    outcome = Outcome(success=True, message="Opened", content=[{"type": "text", "text": "inside"}])
    turns.complete(alice.caller, session, "t1", row.call_id, outcome, reviewed=True, dispatched=action())
    alice.answer(session, Permission(0, row.call_id, granted=True))
    ends(session, "t1")
    assert said(session)[-2] == ("tool", "inside")


@pytest.mark.rule("R167")
def test_a_turn_whose_clients_result_waits_can_be_cancelled(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file", {"path": "a"})], [text("ok")]))
    row = waiting_call(session, "open_file")
    turns.complete(
        alice.caller, session, "t1", row.call_id, Outcome(success=True, message="m"), reviewed=True, dispatched=action()
    )
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    ends(session, "t1", "cancelled")
    assert said(session)[-1] == ("tool", history.CANCELLED)


def test_the_times_of_a_call_follow_one_another(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer
) -> None:
    confirming(agents)
    start_worker()
    free, asked = make(alice, approval="auto"), make(alice, uri="sailor:/two")
    start(alice, free, model.script([call("add_one", {"n": 1})], [text("ok")]))
    start(alice, asked, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(asked, "add_one")
    ends(asked, "t1", "waiting")
    turns.confirm(alice.caller, asked, "t1", row.call_id, Decision(approved=True), dispatched=action())
    for session in (free, asked):
        row = waiting_call(session, "add_one", "review")
        ends(session, "t1", "waiting")
        finished = row.finished_at
        turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=True, dispatched=action())
        ends(session, "t1")
        row.refresh_from_db()
        assert row.decided_at is not None
        assert row.started_at is not None
        assert finished is not None
        assert row.created_at <= row.decided_at <= row.started_at <= finished
        # How long the tool took is not how long a person thought about its result.
        assert row.finished_at == finished
