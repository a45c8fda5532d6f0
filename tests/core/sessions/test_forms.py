"""What an agent asks its user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools import questions
from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.sessions import forms, state
from sessions_app.core.turns import ClientResult, Permission
from sessions_app.models import Turn
from tests.core.client_actions import (
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


@pytest.fixture
def asking(agents: Callable[..., AgentSpec]) -> AgentSpec:
    spec = agents()
    return agents(tools=(*spec.tools, ToolSpec("ask_user", questions.SOURCE, parameters=questions.PARAMETERS)))


QUESTIONS: list[dict[str, Any]] = [
    {"id": "name", "kind": "text", "message": "Name?", "required": True, "max": 5, "surplus": 1},
    {
        "id": "size",
        "kind": "single-select",
        "message": "Size?",
        "options": [{"id": "s", "label": "S"}, {"id": "l", "label": "L"}],
    },
]


def text_answer(value: str, state: str = "submitted") -> dict[str, Any]:
    return {"state": state, "value": {"kind": "text", "value": value}}


@pytest.mark.rule("R200")
@pytest.mark.rule("R205")
def test_an_agent_asks_its_user_and_goes_on_with_the_answers(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"message": "About you", "questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    ends(session, "t1", "waiting")
    shown = state.read(alice.caller, session)
    assert shown.summary.state == "waiting"
    (form,) = shown.forms
    assert form.document["questions"][0] == {key: value for key, value in QUESTIONS[0].items() if key != "surplus"}
    assert shown.live is not None
    assert [part.call.status for part in shown.live.parts if part.call is not None] == ["running"]
    name, caller = form.document["id"], alice.caller
    size = {"state": "submitted", "value": {"kind": "selected", "value": "l"}}
    forms.change_answer(caller, session, name, "size", size, dispatched=action())
    for question, wrong in (
        ("none", text_answer("x")),
        ("name", size),
        ("size", {"state": "submitted", "value": {"kind": "selected", "value": "xl"}}),
        ("name", {"state": "submitted"}),
        ("name", text_answer("too long")),
    ):
        with pytest.raises(NotPossible):
            forms.change_answer(caller, session, name, question, wrong, dispatched=action())
    forms.change_answer(caller, session, name, "name", text_answer("a draft that is long", "draft"), dispatched=action())
    assert set(state.read(caller, session).forms[0].answers) == {"size", "name"}
    forms.change_answer(caller, session, name, "name", None, dispatched=action())
    with pytest.raises(NotPossible):
        forms.complete(caller, session, name, "accept", dispatched=action())
    forms.complete(caller, session, name, "accept", {"name": text_answer("Ada")}, dispatched=action())
    with pytest.raises(NotPossible):
        forms.complete(caller, session, name, "cancel", dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", '{"name":"Ada","size":"l"}')
    told = [kind for kind, _ in events(session) if kind.startswith("form_") or kind == "call_finished"]
    assert told == ["form_opened", *["form_answer_changed"] * 3, "form_closed", "call_finished"]


@pytest.mark.rule("R205")
def test_if_two_clients_close_a_form_the_first_one_counts(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    name = state.read(alice.caller, session).forms[0].document["id"]

    def close(response: Any) -> Callable[[], None]:
        return lambda: forms.complete(alice.caller, session, name, response, dispatched=action())

    assert errors_of(at_once(close("decline"), close("cancel"))) == ["NotPossible", "done"]
    ends(session, "t1")


@pytest.mark.rule("R206")
def test_a_turns_end_closes_its_open_forms(alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    ends(session, "t1", "waiting")
    name = state.read(alice.caller, session).forms[0].document["id"]
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    assert state.read(alice.caller, session).forms == []
    with pytest.raises(NotPossible):
        forms.complete(alice.caller, session, name, "cancel", dispatched=action())


@pytest.mark.rule("R387")
def test_over_aap_a_question_to_the_user_is_a_client_call(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "ask_user"}])
    accepted = alice.say(session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    row = waiting_call(session, "ask_user")
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "waiting", "the turn to wait")
    with pytest.raises(InvalidInput):
        alice.answer(session, Permission(0, row.call_id, granted=True))
    alice.answer(session, ClientResult(0, row.call_id, "Ada, large"))
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "done", "the turn's end")
    closed = [payload for kind, payload in events(session) if kind == "form_closed"]
    assert [(each["response"], each["answers"]) for each in closed] == [("accept", {})]


def test_invalid_questions_are_reported_to_the_model(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(
        alice,
        session,
        model.script([call("ask_user", {"questions": [{"id": "a", "kind": "song", "message": "?"}]})], [text("ok")]),
    )
    ends(session, "t1")
    assert said(session)[-2][1].startswith("Tool execution failed: question a: kind must be one of text, number")
    assert state.read(alice.caller, session).forms == []
