"""Version 3: reading requests, building answers."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from sessions_app.aap.problems import pointer
from sessions_app.aap.versions import v3
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.sessions.listing import Page, SessionFacts
from sessions_app.core.turns import CancelReceipt, ClientResult, Overrides, Permission
from tests.fakes.pictures import PIXEL

PILOT = AgentSpec(
    name="harbour-pilot",
    title="Harbour Pilot",
    version="0.9.2",
    description="Knows tides and berths.",
    model="demo:guide",
    instructions="Never shown.",
    base_url="https://models.example",
    client_tools=True,
    images=("http",),
    options=(
        OptionSpec("select", "units", default="metric", options=("metric", "imperial")),
        OptionSpec("text", "tone", description="How to speak", default="brief"),
        OptionSpec("secret", "model_key", title="Model key", default="sk-of-the-operator"),
    ),
    tools=(
        ToolSpec(
            "tide_table",
            "python:harbour:tide_table",
            description="Times of high and low water",
            parameters={"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
        ),
        ToolSpec("calculator", "builtin:calculator", expose=False),
    ),
)
BARE = AgentSpec(name="bare", model="demo:guide", history=(), stream=("delta",))


# --- answers ---


@pytest.mark.rule("A19", "A20", "A21", "A22", "A23")
def test_meta_shows_what_an_agent_offers_and_no_internals() -> None:
    assert v3.meta([PILOT, BARE]) == {
        "version": 3,
        "agents": [
            {
                "name": "harbour-pilot",
                "title": "Harbour Pilot",
                "version": "0.9.2",
                "description": "Knows tides and berths.",
                "tools": [
                    {
                        "name": "tide_table",
                        "description": "Times of high and low water",
                        "parameters": {
                            "type": "object",
                            "properties": {"harbour": {"type": "string"}},
                            "required": ["harbour"],
                        },
                    }
                ],
                "options": [
                    {"type": "select", "name": "units", "options": ["metric", "imperial"], "default": "metric"},
                    {"type": "text", "name": "tone", "description": "How to speak", "default": "brief"},
                    {"type": "secret", "name": "model_key", "title": "Model key", "default": ""},
                ],
                "capabilities": {
                    "history": {"compacted": {}, "full": {}},
                    "stream": {"delta": {}, "message": {}, "none": {}},
                    "application": {"tools": {}},
                    "image": {"http": {}},
                },
            },
            {"name": "bare", "version": "0.0.0", "capabilities": {"stream": {"delta": {}}}},
        ],
    }


@pytest.mark.rule("A29")
def test_a_session_shows_what_was_set_and_leaves_out_the_rest() -> None:
    assert v3.session(SessionFacts("sess_a", "bare", None, {}, [])) == {"sessionId": "sess_a", "agent": {"name": "bare"}}
    tool = {"name": "t", "description": "", "parameters": {}}
    assert v3.session(SessionFacts("sess_a", "bare", [], {"k": "***"}, [tool])) == {
        "sessionId": "sess_a",
        "agent": {"name": "bare", "tools": [], "options": {"k": "***"}},
        "tools": [tool],
    }


@pytest.mark.rule("A33", "A34")
def test_a_page_has_next_only_if_there_is_more() -> None:
    assert v3.sessions(Page([], None)) == {"sessions": []}
    assert v3.sessions(Page([], "c")) == {"sessions": [], "next": "c"}


@pytest.mark.rule("A36", "A37", "A61", "A97")
def test_messages_are_shown_as_they_were_stored() -> None:
    lines = [
        Line("user", '"hello"', None),
        Line("assistant", '[{"type":"tool_use","toolCallId":"c","name":"t","input":{"z":1180591620717411303424,"a":1.0}}]', None),
        Line("tool", '[{"type":"text","text":"x"}]', "c"),
    ]
    assert exact_json.dumps(v3.history("full", lines)) == (
        '{"history":{"full":[{"role":"user","content":"hello"},{"role":"assistant","content":[{"type":"tool_use",'
        '"toolCallId":"c","name":"t","input":{"z":1180591620717411303424,"a":1.0}}]},'
        '{"role":"tool","toolCallId":"c","content":[{"type":"text","text":"x"}]}]}}'
    )
    assert v3.turn_answer("end_turn", lines[:1]) == {
        "stopReason": "end_turn",
        "messages": [{"role": "user", "content": "hello"}],
    }


@pytest.mark.rule("A121")
def test_a_cancel_says_whether_the_provider_is_closed_only_if_something_was_cancelled() -> None:
    assert v3.cancelled(CancelReceipt(cancelled=False)) == {"cancelled": False}
    assert v3.cancelled(CancelReceipt(cancelled=True, provider_closed=False)) == {"cancelled": True, "providerClosed": False}


# --- requests ---


def refused(check: Any, *args: Any) -> set[str]:
    with pytest.raises(InvalidInput) as caught:
        check(*args)
    return {pointer(fault.path) for fault in caught.value.faults}


def find(name: str) -> AgentSpec:
    if name != PILOT.name:
        raise InvalidInput([Fault(("agent", "name"), "there is no agent with this name")])
    return PILOT


def turn(body: dict[str, Any], spec: AgentSpec = PILOT) -> v3.TurnRequest:
    return v3.turn(body, spec.name, spec)


HELLO = {"role": "user", "content": "hello"}


@pytest.mark.rule("A24", "A94")
def test_a_creation_needs_an_agent_and_nothing_else() -> None:
    bare = SessionRequest("harbour-pilot", None, {}, [], [])
    assert v3.creation({"agent": {"name": "harbour-pilot"}, "stream": "delta", "x": 1}, find) == bare
    nulls = {"agent": {"name": "harbour-pilot", "tools": None, "options": None}, "tools": None, "messages": None}
    assert v3.creation(nulls, find) == bare


@pytest.mark.rule("A6", "A24", "A28", "A88")
@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, {"/agent"}),
        ({"agent": None}, {"/agent"}),
        ({"agent": "harbour-pilot"}, {"/agent"}),
        ({"agent": {}}, {"/agent/name"}),
        ({"agent": {"name": 7}}, {"/agent/name"}),
        ({"agent": {"name": "nobody"}}, {"/agent/name"}),
        (
            {"agent": {"name": "nobody", "tools": {}, "options": {"a/b": 1}}, "tools": "x", "messages": {}},
            {"/agent/name", "/agent/tools", "/agent/options/a~1b", "/tools", "/messages"},
        ),
        (
            {
                "agent": {"name": "harbour-pilot"},
                "messages": [{"role": "user", "content": [{"type": "image", "url": "data:,x"}]}],
            },
            {"/messages/0/content/0"},
        ),
    ],
)
def test_every_fault_of_a_creation_is_reported(body: dict[str, Any], pointers: set[str]) -> None:
    assert refused(v3.creation, body, find) == pointers


@pytest.mark.rule("A48", "A50", "A94")
def test_a_turn_changes_only_what_it_names() -> None:
    assert turn({"messages": [HELLO]}) == v3.TurnRequest("none", "hello", [], Overrides())
    nulls = {"messages": [HELLO], "stream": None, "tools": None, "agent": {"name": None, "tools": None, "options": None}}
    assert turn(nulls) == v3.TurnRequest("none", "hello", [], Overrides())
    empty = turn({"messages": [HELLO], "stream": "delta", "tools": [], "agent": {"tools": [], "options": {}, "name": PILOT.name}})
    assert empty == v3.TurnRequest("delta", "hello", [], Overrides(tool_refs=[], options={}, client_tools=[]))


@pytest.mark.rule("A49")
def test_answers_come_in_any_order_and_keep_their_places() -> None:
    request = turn(
        {
            "messages": [
                {"role": "tool", "toolCallId": "a", "content": [{"type": "text", "text": "x", "y": 1}]},
                {"role": "tool_permission", "toolCallId": "b", "granted": False, "reason": "no"},
                {"role": "tool", "toolCallId": "c", "content": ""},
                {"role": "tool_permission", "toolCallId": "d", "granted": True, "reason": None},
            ]
        }
    )
    assert request.content is None
    assert request.answers == [
        ClientResult(0, "a", [{"type": "text", "text": "x"}]),
        Permission(1, "b", granted=False, reason="no"),
        ClientResult(2, "c", ""),
        Permission(3, "d", granted=True, reason=""),
    ]


@pytest.mark.rule("A6", "A49", "A50", "A80", "A83", "A88", "A89")
@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, {"/messages"}),
        ({"messages": None}, {"/messages"}),
        ({"messages": {}}, {"/messages"}),
        ({"messages": []}, {"/messages"}),
        ({"messages": [HELLO, HELLO]}, {"/messages"}),
        ({"messages": [HELLO, {"role": "tool", "toolCallId": "c", "content": ""}]}, {"/messages"}),
        ({"messages": [{"role": "system", "content": "x"}]}, {"/messages/0/role"}),
        ({"messages": [HELLO, {"role": "assistant", "content": "x"}]}, {"/messages/1/role"}),
        ({"messages": ["hello"]}, {"/messages/0"}),
        ({"messages": [{"role": {}, "content": "x"}]}, {"/messages/0/role"}),
        ({"messages": [{"role": "user", "content": " "}]}, {"/messages/0/content"}),
        ({"messages": [{"role": "user"}]}, {"/messages/0/content"}),
        ({"messages": [{"role": "tool", "content": "x"}]}, {"/messages/0/toolCallId"}),
        ({"messages": [{"role": "tool", "toolCallId": "c"}]}, {"/messages/0/content"}),
        (
            {"messages": [{"role": "tool_permission", "toolCallId": 1, "granted": "yes", "reason": 1}]},
            {"/messages/0/toolCallId", "/messages/0/granted", "/messages/0/reason"},
        ),
        (
            {"messages": [{"role": "tool", "toolCallId": "c", "content": [{"type": "image", "url": PIXEL}]}]},
            {"/messages/0/content/0"},
        ),
        (
            {"messages": [], "stream": "fast", "tools": [{}], "agent": {"name": "x", "tools": [1], "options": {"o": 1}}},
            {
                "/messages",
                "/stream",
                "/tools/0/name",
                "/tools/0/description",
                "/tools/0/parameters",
                "/agent/name",
                "/agent/tools/0",
                "/agent/options/o",
            },
        ),
        ({"messages": [HELLO], "agent": []}, {"/agent"}),
        ({"messages": [HELLO], "stream": 1}, {"/stream"}),
        ({"messages": [HELLO], "stream": ["delta"]}, {"/stream"}),
    ],
)
def test_every_fault_of_a_turn_is_reported(body: dict[str, Any], pointers: set[str]) -> None:
    assert refused(turn, body) == pointers


@pytest.mark.rule("A80")
@pytest.mark.parametrize("body", [{}, {"stream": "none"}, {"stream": "message"}, {"stream": None}])
def test_a_mode_the_agent_does_not_offer_is_refused_the_default_too(body: dict[str, Any]) -> None:
    assert refused(turn, {"messages": [HELLO], **body}, BARE) == {"/stream"}
    assert turn({"messages": [HELLO], "stream": "delta"}, BARE).mode == "delta"


@pytest.mark.rule("A121")
def test_a_cancel_may_give_its_reason() -> None:
    assert v3.cancel_reason({}) == v3.cancel_reason({"reason": None}) == ""
    assert v3.cancel_reason({"reason": "enough"}) == "enough"
    assert refused(v3.cancel_reason, {"reason": 7}) == {"/reason"}
