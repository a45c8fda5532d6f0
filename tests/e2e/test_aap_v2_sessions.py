"""AAP version 2: names of agents, creation with a first turn, sessions and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.client import Client, pointers, tool, user
from tests.e2e.client_v2 import ClientV2, old_tool, opening_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SECRET = "sk-clients-canary-v2-9b1d"
CLOSED = "Tool call denied: the user sent a new message instead"


@pytest.fixture
def old(server: Server) -> Iterator[ClientV2]:
    client = ClientV2(server.origin(), server.keys.alice)
    yield client
    client.close()


def somebody(server: Server) -> Iterator[tuple[ClientV2, Client]]:
    """A tenant of one's own, with applications of both versions."""
    client = server.new_tenant()
    old = ClientV2(server.origin(), client.key)
    yield old, client
    old.close()


nobody_else = pytest.fixture(somebody)


# --- /meta ---


@pytest.mark.rule("A101", "A102", "A106")
def test_meta_is_version_3s_but_for_its_number_and_the_name_of_schemas(old: ClientV2, alice: Client) -> None:
    ours, theirs = old.meta(), alice.meta()
    assert ours["version"] == 2
    for agent in theirs["agents"]:
        for one in agent.get("tools", []):
            one["inputSchema"] = one.pop("parameters")
    assert ours["agents"] == theirs["agents"]
    assert any(agent.get("tools") for agent in ours["agents"])


# --- the creation that runs ---


@pytest.mark.rule("A101", "A104", "A56", "A58", "A60")
@pytest.mark.parametrize("stream", ["delta", "message", "none", None])
def test_a_creation_runs_its_last_message_in_every_mode(old: ClientV2, model: ModelServer, stream: str | None) -> None:
    prompt = model.script([steps.thinking("Let me see. "), steps.text("Fair ", "winds.")])
    session, outcome = old.open("pilot", prompt, stream=stream)
    said = [{"type": "thinking", "thinking": "Let me see. "}, {"type": "text", "text": "Fair winds."}]
    assert (outcome.stop, outcome.messages) == ("end_turn", [{"role": "assistant", "content": said}])
    assert old.history(session) == [user(prompt), {"role": "assistant", "content": said}]
    assert len(model.requests_of(prompt)) == 1


@pytest.mark.rule("A104", "A53")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_session_start_and_turn_start_come_before_the_model_has_said_anything(
    old: ClientV2, model: ModelServer, mode: str
) -> None:
    gate = f"v2 silent {mode}"
    prompt = model.script([steps.gate(gate), steps.text("now")])
    with old.open_stream("echo", prompt, mode=mode) as (session, stream):
        second = stream.next()
        assert second is not None
        assert (second.name, second.data) == ("turn_start", {})
        assert old.session(session)["sessionId"] == session
        model.wait_gate(gate)
        model.open_gate(gate)
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}


@pytest.mark.rule("A103", "A27", "A37")
def test_all_messages_but_the_last_are_the_seed(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    seed = [
        {"role": "system", "content": "The user is a beginner."},
        user("What floats?"),
        {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "s1", "name": "gone", "input": {"b": 1, "a": 2}}]},
        tool("s1", "wood"),
        {"role": "assistant", "content": "Wood."},
        user([{"type": "text", "text": "And what sinks?"}]),
        {"role": "assistant", "content": "Iron."},
    ]
    session, _ = old.open("pilot", *seed, user(prompt))
    assert old.history(session) == [*seed, user(prompt), {"role": "assistant", "content": "ok"}]
    request = model.requests_of(prompt)[0]
    roles = [message["role"] for message in request.messages]
    assert roles == ["system", "system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    assert request.messages[1]["content"] == "The user is a beginner."


@pytest.mark.rule("A103", "A76")
def test_calls_left_open_at_the_end_of_the_seed_are_closed_first(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.text("on we go")])
    blocks = [
        {"type": "tool_use", "toolCallId": "mine1", "name": "mine", "input": {}},
        {"type": "tool_use", "toolCallId": "rope1", "name": "order_rope", "input": {"metres": 3}},
    ]
    seed = [user("go"), {"role": "assistant", "content": blocks}]
    agent = {"name": "pilot", "tools": [{"name": "order_rope"}]}
    session, outcome = old.open(agent, *seed, user(prompt), stream="delta", tools=[old_tool("mine")])
    assert [event.name for event in outcome.events] == ["turn_start", "tool_result", "text_delta", "turn_stop"]
    assert outcome.events[1].data == {"toolCallId": "rope1", "content": CLOSED}
    assert old.history(session)[2:5] == [tool("mine1", CLOSED), tool("rope1", CLOSED), user(prompt)]


@pytest.mark.rule("A103", "A7")
def test_a_creation_without_a_user_message_at_its_end_is_422_and_makes_no_session(
    nobody_else: tuple[ClientV2, Client], model: ModelServer
) -> None:
    old, new = nobody_else
    call = {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "c", "name": "t", "input": {}}]}
    bad: list[tuple[Any, str]] = [
        ([], "/messages"),
        ([{"role": "system", "content": "x"}], "/messages/0/role"),
        ([user("x"), {"role": "assistant", "content": "y"}], "/messages/1/role"),
        ([user("x"), call, tool("c", "z")], "/messages/2/role"),
        ([user("x"), call, {"role": "tool_permission", "toolCallId": "c", "granted": True}], "/messages/2/role"),
        ([user("x"), user(" ")], "/messages/1/content"),
        ([user("x"), "y"], "/messages/1"),
        ([{"role": "tool_permission", "toolCallId": "c", "granted": True}, user("x")], "/messages/0/role"),
        ("x", "/messages"),
        (None, "/messages"),
    ]
    for messages, place in bad:
        assert pointers(old.refused_opening({"agent": {"name": "echo"}, "messages": messages})) == [place], messages
    assert pointers(old.refused_opening({"messages": [user("x")]})) == ["/agent"]
    assert pointers(old.refused_opening(opening_body("nobody", "x"))) == ["/agent/name"]
    assert pointers(old.refused_opening(opening_body("echo", "x", stream="fast"))) == ["/stream"]
    assert pointers(old.refused_opening(opening_body("bare", "x"))) == ["/stream"]
    assert pointers(old.refused_opening(opening_body("bare", "x", stream="delta", tools=[old_tool("t")]))) == ["/tools"]
    assert new.all_sessions() == []
    assert model.requests == []


@pytest.mark.rule("A102")
def test_a_tool_has_its_schema_under_this_versions_name_or_is_422(nobody_else: tuple[ClientV2, Client]) -> None:
    old, new = nobody_else
    newer = {"name": "mine", "description": "", "parameters": {"type": "object"}}
    assert pointers(old.refused_opening(opening_body("echo", "x", tools=[newer]))) == ["/tools/0/inputSchema"]
    assert pointers(old.refused_opening(opening_body("echo", "x", tools=[old_tool("a"), {"name": "b"}]))) == [
        "/tools/1/description",
        "/tools/1/inputSchema",
    ]
    assert new.all_sessions() == []
    session = old.create()
    assert pointers(old.refused(session, "x", tools=[newer])) == ["/tools/0/inputSchema"]
    assert new.post("/sessions", {"agent": {"name": "echo"}, "tools": [old_tool("a")]}).status_code == 422


@pytest.mark.rule("A102", "A11", "A29")
def test_tools_come_back_as_they_were_sent_and_reach_the_model(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    schema = {"type": "object", "zeta": {"parameters": 1, "inputSchema": 2}, "properties": {"parameters": {"type": "string"}}}
    tools = [{"inputSchema": schema, "name": "mine", "title": "Mine", "description": "d"}, old_tool("yours")]
    session, _ = old.open("echo", prompt, tools=tools)
    raw = old.get(f"/session/{session}").text
    assert old.session(session)["tools"] == tools
    assert list(old.session(session)["tools"][0]) == ["inputSchema", "name", "title", "description"]
    assert raw.index('"zeta"') < raw.index('"properties"')
    assert model.requests_of(prompt)[0].body["tools"][0]["function"]["parameters"] == schema


@pytest.mark.rule("A105", "A84")
@pytest.mark.parametrize("stream", ["delta", "message", "none"])
def test_a_creation_whose_agent_fails_leaves_a_usable_session(old: ClientV2, model: ModelServer, stream: str) -> None:
    failing = model.script([steps.status(400)])
    session, outcome = old.open("echo", failing, stream=stream)
    assert (outcome.stop, outcome.messages) == ("error", [])
    if stream != "none":
        assert [event.name for event in outcome.events] == ["turn_start", "turn_stop"]
    assert old.history(session) == [user(failing)]
    assert old.turn(session, "again").stop == "end_turn"
    session, outcome = old.open("unreachable", "hi", stream=stream)
    assert outcome.stop == "error"
    assert old.session(session)["agent"] == {"name": "unreachable"}


@pytest.mark.rule("A105", "A85")
def test_a_creation_that_fails_during_the_answer_keeps_the_text(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.text("half a"), steps.drop()])
    session, outcome = old.open("echo", prompt, stream="delta")
    assert (outcome.stop, outcome.text) == ("error", "half a")
    assert old.history(session)[-1] == {"role": "assistant", "content": "half a"}


# --- a session ---


@pytest.mark.rule("A101", "A106", "A29", "A30")
def test_a_session_and_the_list_show_the_same_and_no_secret(nobody_else: tuple[ClientV2, Client]) -> None:
    old, _ = nobody_else
    options = {"tone": "dry", "model_key": SECRET}
    agent = {"name": "pilot", "tools": [{"name": "tide_table", "trust": True}, {"name": "fail"}], "options": options}
    session, _ = old.open(agent, "hi", tools=[old_tool("mine")])
    shown = old.session(session)
    assert shown == {
        "sessionId": session,
        "agent": {**agent, "options": {"tone": "dry", "model_key": "***"}},
        "tools": [old_tool("mine")],
    }
    assert old.ok("GET", "/sessions") == {"sessions": [shown]}


@pytest.mark.rule("A101", "A33", "A34", "A42")
def test_the_list_has_pages_of_fifty_with_one_cursor(nobody_else: tuple[ClientV2, Client]) -> None:
    old, new = nobody_else
    made = [new.create(tools=[]) for _ in range(51)]
    page = old.ok("GET", "/sessions")
    assert [one["sessionId"] for one in page["sessions"]] == made[:0:-1]
    assert set(page) == {"sessions", "next"}
    assert old.ok("GET", "/sessions", params={"after": page["next"]}) == {"sessions": [old.session(made[0])]}
    assert old.get("/sessions", params={"after": "x"}).status_code == 400


@pytest.mark.rule("A101", "A106", "A46", "A47", "A36")
def test_histories_as_in_version_3(old: ClientV2) -> None:
    session = old.create("echo", messages=["hi"])
    said = [user("hi"), {"role": "assistant", "content": "echo: hi"}]
    assert old.history(session, "full") == old.history(session, "compacted") == said
    assert old.get(f"/session/{session}/history").status_code == 400
    assert old.get(f"/session/{session}/history?type=all").status_code == 400
    assert old.get(f"/session/{session}/history?history=full").status_code == 400
    bare = old.create("bare", messages=["hi"], stream="delta")
    assert old.get(f"/session/{bare}/history?type=compacted").status_code == 404
    mute = old.create("mute", messages=["hi"])
    assert old.get(f"/session/{mute}/history?type=full").status_code == 404
    # In this version a session has no history member.
    assert "history" not in old.ok("GET", f"/session/{session}?history=full")


@pytest.mark.rule("A101", "A106", "A32")
def test_a_deleted_session_is_gone(old: ClientV2) -> None:
    session = old.create()
    response = old.request("DELETE", f"/session/{session}")
    assert (response.status_code, response.content) == (204, b"")
    assert old.request("DELETE", f"/session/{session}").status_code == 404
    assert old.get(f"/session/{session}").status_code == 404
    assert old.get(f"/session/{session}/history?type=full").status_code == 404
    assert old.post(f"/session/{session}", {"messages": "bad"}).status_code == 404


@pytest.mark.rule("A3", "A106")
def test_another_tenants_session_never_existed(old: ClientV2, server: Server) -> None:
    session = old.create()
    bob = ClientV2(server.origin(), server.keys.bob)
    for method, below in (("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/history?type=full"), ("POST", "/cancel")):
        answers = [bob.request(method, f"/session/{one}{below}") for one in (session, "sess_never0000000000")]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].json()["detail"] == answers[1].json()["detail"]
    assert bob.get(f"/session/{session}/events/stream?stream=delta").status_code == 404
    bob.close()


@pytest.mark.rule("A101", "A1")
def test_paths_of_version_3_are_not_here(old: ClientV2) -> None:
    session = old.create()
    assert old.get(f"/sessions/{session}").status_code == 404
    assert old.post(f"/sessions/{session}/turns", {"messages": [user("x")]}).status_code == 404
    response = old.post("/sessions", {"agent": {"name": "echo"}})
    assert response.status_code == 405
    assert "GET" in response.headers["Allow"]
    for method in ("GET", "POST", "DELETE"):
        response = old.request(method, "/session")
        assert (response.status_code, response.headers["Allow"]) == (405, "PUT")
    assert old.request("PUT", f"/session/{session}").status_code == 405
    assert old.request("HEAD", f"/session/{session}").status_code == 200


@pytest.mark.rule("A2", "A106")
def test_keys_are_judged_as_in_version_3(server: Server) -> None:
    reader = ClientV2(server.origin(), server.keys.reader)
    assert reader.get("/sessions").status_code == 200
    assert reader.request("PUT", "/session", content=b"not json").status_code == 403
    stranger = ClientV2(server.origin(), None)
    response = stranger.request("PUT", "/session", opening_body("echo", "x"))
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    echo_only = ClientV2(server.origin(), server.keys.echo_only)
    assert [agent["name"] for agent in echo_only.meta()["agents"]] == ["echo"]
    assert pointers(echo_only.refused_opening(opening_body("pilot", "x"))) == ["/agent/name"]
    for client in (reader, stranger, echo_only):
        client.close()


@pytest.mark.rule("A4", "A106")
def test_bodies_are_judged_as_in_version_3(old: ClientV2) -> None:
    json_type = {"Content-Type": "application/json"}
    assert old.request("PUT", "/session", content=b"{", headers=json_type).status_code == 400
    assert old.request("PUT", "/session", content=b"", headers=json_type).status_code == 400
    assert old.request("PUT", "/session", content=b"[]", headers=json_type).status_code == 422
    assert old.request("PUT", "/session", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
