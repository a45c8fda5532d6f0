"""AAP version 2: turns, tools, streams and extensions, where they differ from version 3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import sse
from tests.e2e.client import deny, grant, tool, user
from tests.e2e.client_v2 import OPENING_FIELDS, ClientV2, old_tool, opening_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

TRUSTED = {"name": "tide_table", "trust": True}
ASKING = {"name": "order_rope"}


@pytest.fixture
def old(server: Server) -> Iterator[ClientV2]:
    client = ClientV2(server.origin(), server.keys.alice)
    yield client
    client.close()


def pilot(*tools: dict[str, Any], **options: str) -> dict[str, Any]:
    return {"name": "pilot", "tools": list(tools), "options": options}


def rope(metres: float, call_id: str) -> steps.Step:
    return steps.call("order_rope", {"metres": metres}, id=call_id)


# --- tools ---


@pytest.mark.rule("A106", "A63", "A70", "A57", "A65")
@pytest.mark.parametrize("stream", ["delta", "message", "none"])
def test_mixed_calls_of_a_creation_are_answered_by_a_turn(old: ClientV2, server: Server, model: ModelServer, stream: str) -> None:
    metres = {"delta": 2101, "message": 2102, "none": 2103}[stream]
    prompt = model.script(
        [
            steps.text("On it."),
            steps.call("mine", {"day": "Tuesday"}, id="k1"),
            steps.call("mine", {}, id="k2"),
            steps.call("tide_table", {"harbour": "v2"}, id="k3"),
            rope(metres, "k4"),
        ],
        [steps.text("All set.")],
    )
    session, asked = old.open(pilot(TRUSTED, ASKING), prompt, stream=stream, tools=[old_tool("mine")])
    assert asked.stop == "tool_use"
    assert [call["toolCallId"] for call in asked.calls] == ["k1", "k2", "k3", "k4"]
    assert asked.results == {"k3": "high 06:12, low 12:31 in v2"}
    if stream != "none":
        names = [event.name for event in asked.events]
        assert names[-6:] == ["tool_call"] * 4 + ["tool_result", "turn_stop"]
    answered = old.turn(session, tool("k1", "serviced"), tool("k2", "Aino"), grant("k4"), stream=stream)
    assert (answered.stop, answered.text) == ("end_turn", "All set.")
    assert list(answered.results) == ["k4"]
    assert server.tools.executions("order_rope", metres=metres) == 1
    history = old.history(session)
    assert [(line["role"], line.get("toolCallId")) for line in history] == [
        ("user", None),
        ("assistant", None),
        ("tool", "k3"),
        ("tool", "k1"),
        ("tool", "k2"),
        ("tool", "k4"),
        ("assistant", None),
    ]
    assert [*asked.messages, *answered.messages] == [line for line in history[1:] if line.get("toolCallId") not in ("k1", "k2")]


@pytest.mark.rule("A106", "A64", "A66")
def test_a_denial_has_the_text_of_version_3_and_the_tool_never_runs(old: ClientV2, server: Server, model: ModelServer) -> None:
    prompt = model.script([rope(2201, "d1"), rope(2202, "d2")], [steps.text("Then not.")])
    session, _ = old.open(pilot(ASKING), prompt)
    answered = old.turn(session, deny("d1", "we have plenty"), deny("d2"))
    assert answered.messages[:2] == [tool("d1", "Tool call denied: we have plenty"), tool("d2", "Tool call denied")]
    assert server.tools.executions("order_rope", metres=2201) == 0
    assert server.tools.executions("order_rope", metres=2202) == 0


@pytest.mark.rule("A106", "A77", "A79")
def test_partial_answers_and_wrong_ids_as_in_version_3(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {}, id="p1"), steps.call("mine", {}, id="p2")], [steps.text("both")])
    session, _ = old.open("echo", prompt, tools=[old_tool("mine")])
    old.refused(session, tool("p9", "x"))
    assert old.turn(session, tool("p1", "x")).stop == "tool_use"
    old.refused(session, tool("p1", "x"))
    assert old.turn(session, tool("p2", "y")).text == "both"


@pytest.mark.rule("A106", "A50")
def test_overrides_of_a_turn_stay(old: ClientV2, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    session = old.create("pilot", tools=[old_tool("one")])
    old.turn(session, prompt, agent={"options": {"tone": "dry"}, "tools": [TRUSTED]}, tools=[old_tool("two")])
    old.turn(session, prompt)
    assert sorted(model.requests_of(prompt)[1].tool_names) == ["tide_table", "two", "whisper"]
    shown = old.session(session)
    assert (shown["agent"]["options"], shown["tools"]) == ({"tone": "dry"}, [old_tool("two")])
    old.turn(session, prompt, tools=[])
    assert "tools" not in old.session(session)


# --- one at a time ---


@pytest.mark.rule("A106", "A78")
def test_a_turn_while_the_creations_runs_is_409(old: ClientV2, model: ModelServer) -> None:
    gate = "v2 busy"
    prompt = model.script([steps.gate(gate), steps.text("done")])
    with old.open_stream("echo", prompt) as (session, stream):
        old.refused(session, "me too", status=409)
        model.open_gate(gate)
        assert stream.rest()[-1].name == "turn_stop"
    assert old.turn(session, "now").stop == "end_turn"


# --- what this server adds ---


@pytest.mark.rule("A104", "A120", "A54")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_a_creations_stream_is_joined_from_each_of_its_positions(old: ClientV2, model: ModelServer, mode: str) -> None:
    prompt = model.script(
        [steps.thinking("hm"), steps.text("one"), steps.call("tide_table", {"harbour": "joined"}, id="j1")], [steps.text("two")]
    )
    with old.open_stream(pilot(TRUSTED), prompt, mode=mode) as (session, stream):
        stream.rest()
        seen = stream.seen
    assert [event.id for event in seen] == sorted({event.id for event in seen})
    for place, event in enumerate(seen[:-1]):
        for by_header in (True, False):
            with old.join(session, mode=mode, after=event.id, by_header=by_header) as again:
                assert again.rest() == seen[place + 1 :]
    last = old.get(f"/session/{session}/events/stream", params={"stream": mode, "after": seen[-1].id})
    assert last.status_code == 204


@pytest.mark.rule("A120")
def test_a_running_creation_is_joined_at_its_turn_start(old: ClientV2, model: ModelServer) -> None:
    gate = "v2 join"
    prompt = model.script([steps.gate(gate), steps.text("said")])
    with old.open_stream("echo", prompt) as (session, first), old.join(session) as second:
        joined = second.next()
        assert joined is not None
        assert joined.name == "turn_start"
        model.open_gate(gate)
        assert [joined, *second.rest()] == first.rest()


@pytest.mark.rule("A121")
def test_a_running_creation_is_cancelled(old: ClientV2, model: ModelServer) -> None:
    def cancel_one() -> bool:
        with old.open_stream("echo", model.script([steps.text("half"), steps.hang()])) as (session, stream):
            stream.until("text_delta")
            receipt = old.cancel(session)
            assert (set(receipt), receipt["cancelled"]) == ({"cancelled", "providerClosed"}, True)
            assert stream.rest()[-1].data == {"stopReason": "end_turn"}
        assert old.history(session)[-1] == {"role": "assistant", "content": "half"}
        assert old.cancel(session) == {"cancelled": False}
        return bool(receipt["providerClosed"])

    # A cancel waits a second for the provider's end. A machine under pressure may lose one, but not every time.
    assert any(cancel_one() for _ in range(5))


@pytest.mark.rule("A123")
@pytest.mark.parametrize("stream", ["delta", "none"])
def test_a_creation_has_a_deadline(old: ClientV2, model: ModelServer, stream: str) -> None:
    for seconds in ("1", "4", "16"):
        prompt = model.script([steps.text("half"), steps.hang()])
        session, outcome = old.open("echo", prompt, stream=stream, headers={"X-Turn-Deadline": seconds})
        if outcome.text:  # A busy machine may need more than a second to the first word.
            break
    assert (outcome.stop, outcome.text) == ("error", "half")
    assert old.history(session)[-1] == {"role": "assistant", "content": "half"}


@pytest.mark.rule("A98")
@pytest.mark.parametrize("stream", ["delta", "message", "none"])
def test_a_repeated_creation_joins_the_running_one_or_gets_its_response(
    old: ClientV2, server: Server, model: ModelServer, stream: str
) -> None:
    gate = f"v2 once {stream}"
    prompt = model.script([steps.gate(gate), steps.text("once")])
    body = opening_body("echo", prompt, stream=stream)
    headers = {"Idempotency-Key": f"opening {stream}".replace(" ", "-")}
    bodies: list[bytes] = []

    def send() -> None:
        client = ClientV2(server.origin(), server.keys.alice)
        bodies.append(client.request("PUT", "/session", body, headers=headers).content.strip())
        client.close()

    both = [threading.Thread(target=send) for _ in range(2)]
    for thread in both:
        thread.start()
    model.wait_gate(gate)
    model.open_gate(gate)
    for thread in both:
        thread.join(60)
    third = old.request("PUT", "/session", body, headers=headers)
    session, outcome = old.opened(third, stream)
    assert outcome.text == "once"
    if stream == "none":
        assert bodies == [third.content.strip()] * 2
    else:
        assert [sse.parse(one + b"\n\n", OPENING_FIELDS) for one in bodies] == [sse.parse(third.content, OPENING_FIELDS)] * 2
    assert len(model.requests_of(prompt)) == 1
    assert old.history(session) == [user(prompt), {"role": "assistant", "content": "once"}]
    assert old.request("PUT", "/session", opening_body("echo", "other"), headers=headers).status_code == 422


@pytest.mark.rule("A98")
def test_idempotency_keys_are_separate_per_version(old: ClientV2, alice: Any) -> None:
    headers = {"Idempotency-Key": "v2-and-v3"}
    session, _ = old.open("echo", "hi", headers=headers)
    response = alice.post("/sessions", {"agent": {"name": "echo"}}, headers=headers)
    assert response.status_code == 201
    assert response.json()["sessionId"] != session


@pytest.mark.rule("A122")
def test_a_creations_answers_carry_their_ids(old: ClientV2) -> None:
    for stream in ("delta", "none"):
        response = old.request("PUT", "/session", opening_body("echo", "hi", stream=stream), headers={"X-Request-Id": "mine-2"})
        assert response.headers["X-Request-Id"] == "mine-2"
        assert response.headers["X-Turn-Id"].startswith("turn_")


# --- what cannot be taken for granted in old clients ---


@pytest.mark.rule("A94", "A5", "A8", "A106")
def test_members_of_older_versions_are_ignored(old: ClientV2) -> None:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    body = {**opening_body("echo", "hi"), "limit": 3, "stream": None, "tools": None}
    response = old.request("PUT", "/session", body, headers={"Accept": "text/event-stream"})
    session, _ = old.opened(response)
    assert old.get("/sessions", params={"limit": "20"}, headers=headers).status_code == 200
    assert old.get(f"/session/{session}", headers=headers).status_code == 200
    assert old.request("DELETE", f"/session/{session}", headers=headers).status_code == 204
