"""Clients of AAP version 1 share sessions with clients of versions 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.client import Client, client_tool, deny, grant, tool, user
from tests.e2e.client_v1 import ClientV1
from tests.e2e.client_v2 import ClientV2, old_tool
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

Everyone = tuple[ClientV1, ClientV2, Client]


@pytest.fixture
def everyone(server: Server) -> Iterator[Everyone]:
    """A tenant of one's own, with an application of each version."""
    new = server.new_tenant()
    clients = ClientV1(server.origin(), new.key), ClientV2(server.origin(), new.key), new
    yield clients
    for client in clients[:2]:
        client.close()


@pytest.mark.rule("A116", "A111", "A112", "A102")
def test_each_version_shows_a_session_in_its_own_format(everyone: Everyone) -> None:
    one, two, three = everyone
    session, _ = one.open({"name": "pilot", "options": {"tone": "dry"}}, "hi", tools=[old_tool("mine")])
    agent = {"name": "pilot", "options": {"tone": "dry"}}
    in_old_words = {"sessionId": session, "agent": agent, "tools": [old_tool("mine")]}
    in_new_words = {"sessionId": session, "agent": agent, "tools": [client_tool("mine")]}
    said = [user("hi"), {"role": "assistant", "content": "echo: hi"}]
    assert one.ok("GET", f"/session/{session}") == {**in_old_words, "history": {"compacted": said, "full": said}}
    assert two.ok("GET", f"/session/{session}") == in_old_words
    assert three.ok("GET", f"/sessions/{session}") == in_new_words
    assert one.ok("GET", "/sessions") == {"sessions": [session]}
    assert two.ok("GET", "/sessions") == {"sessions": [in_old_words]}
    assert three.ok("GET", "/sessions") == {"sessions": [in_new_words]}


@pytest.mark.rule("A116")
def test_one_conversation_through_all_versions(everyone: Everyone, server: Server, model: ModelServer) -> None:
    one, two, three = everyone
    prompt = model.script(
        [
            steps.call("mine", {}, id="w1"),
            steps.call("order_rope", {"metres": 3201}, id="w2"),
            steps.call("order_rope", {"metres": 3202}, id="w3"),
        ],
        [steps.text("Ready.")],
    )
    session, _ = one.open({"name": "pilot", "tools": [{"name": "order_rope"}]}, "hi", tools=[old_tool("mine")])
    assert three.turn(session, prompt, stream="delta").stop == "tool_use"
    assert two.turn(session, tool("w1", "calm")).stop == "tool_use"
    assert one.turn(session, grant("w2"), stream="message").stop == "tool_use"
    assert three.turn(session, deny("w3")).text == "Ready."
    assert server.tools.executions("order_rope", metres=3201) == 1
    assert one.history(session) == two.history(session) == three.history(session)
    assert two.turn(session, "bye").text == "echo: bye"
    assert three.request("DELETE", f"/sessions/{session}").status_code == 204
    assert one.get(f"/session/{session}").status_code == 404
    assert two.get(f"/session/{session}").status_code == 404
    assert one.all_ids() == []


@pytest.mark.rule("A116", "A103")
def test_a_session_of_version_3_is_usable_in_version_1(everyone: Everyone) -> None:
    one, _, three = everyone
    empty = three.create()
    assert one.ok("GET", f"/session/{empty}")["history"] == {"compacted": [], "full": []}
    assert one.turn(empty, "hi", stream="delta").text == "echo: hi"
    seeded = three.create(messages=[user("seeded")], tools=[client_tool("mine")])
    assert one.ok("GET", f"/session/{seeded}?history=full") == {
        "sessionId": seeded,
        "agent": {"name": "echo"},
        "tools": [old_tool("mine")],
        "history": {"full": [user("seeded")]},
    }
    assert one.all_ids() == [seeded, empty]


@pytest.mark.rule("A116", "A120", "A121")
def test_a_running_turn_is_visible_in_all_versions(everyone: Everyone, model: ModelServer) -> None:
    one, two, three = everyone
    prompt = model.script([steps.text("half"), steps.hang()])
    with one.open_stream("echo", prompt) as (session, stream):
        stream.until("text_delta")
        start = stream.seen[0].id
        with two.join(session, after=start) as second, three.join(session, after=start) as third:
            two.refused(session, "me too", status=409)
            assert one.cancel(session)["cancelled"] is True
            rest = [*stream.seen[1:], *stream.rest()]
            assert second.rest() == third.rest() == rest
