"""AAP version 3: stream format, the three stream modes, joining, and slow readers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import Any

import pytest

from tests.e2e import sse
from tests.e2e.client import Client, Outcome, client_tool, deny, grant, tool, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.embedded_too

# --- form ---


@pytest.mark.rule("A53")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_a_stream_has_the_headers_that_keep_proxies_from_holding_it_back(alice: Client, mode: str) -> None:
    with alice.stream(alice.create(), "hi", mode=mode) as stream:
        headers = stream.response.headers
        assert headers["Content-Type"].split(";")[0] == "text/event-stream"
        assert "no-cache" in headers["Cache-Control"]
        assert headers["X-Accel-Buffering"] == "no"
        stream.rest()


@pytest.mark.rule("A53", "A56", "A55", "A54")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_each_event_is_sent_at_once_the_first_before_the_model_has_said_anything(
    alice: Client, model: ModelServer, mode: str
) -> None:
    gate = f"silent {mode}"
    prompt = model.script([steps.gate(gate), steps.text("now"), steps.gate(gate + " 2"), steps.text(" then")])
    with alice.stream(alice.create(), prompt, mode=mode) as stream:
        first = stream.next()
        assert first is not None
        assert (first.name, first.data) == ("turn_start", {})
        model.wait_gate(gate)
        model.open_gate(gate)
        if mode == "delta":
            second = stream.next()
            assert second is not None
            assert second.data == {"delta": "now"}
        model.open_gate(gate + " 2")
        rest = stream.rest()
    assert rest[-1].data == {"stopReason": "end_turn"}


@pytest.mark.rule("A54", "A122")
def test_the_stream_is_byte_for_byte_what_the_rules_say(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("é\u2028")])
    raw = alice.post(f"/sessions/{alice.create()}/turns", turn_body(prompt, stream="delta")).content.decode()
    blocks = raw.split("\n\n")
    assert blocks[-1] == ""
    for block, name in zip(blocks, ["turn_start", "text_delta", "turn_stop"], strict=False):
        position, event, data = block.split("\n")
        assert position.startswith("id: ")
        assert event == f"event: {name}"
        assert json.loads(data.removeprefix("data: ")) in ({}, {"delta": "é\u2028"}, {"stopReason": "end_turn"})
    assert len(blocks) == 4


@pytest.mark.rule("A54", "A120")
def test_positions_grow_and_are_the_same_for_all_readers(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("a", "b", "c")])
    session = alice.create()
    first = alice.turn(session, prompt, stream="delta").events
    second = alice.turn(session, prompt, stream="delta").events
    ids = [event.id for event in [*first, *second]]
    assert len(set(ids)) == len(ids)
    with alice.join(session, after=first[0].id) as joined:
        assert joined.rest() == [*first[1:], *second]


@pytest.mark.rule("A54", "A53")
def test_a_quiet_stream_is_kept_alive_by_comments(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.gate("quiet stream"), steps.text("at last")])
    with alice.stream(alice.create(), prompt) as stream:
        stream.until_comment()
        stream.until_comment()
        model.open_gate("quiet stream")
        assert [event.name for event in stream] == ["turn_start", "text_delta", "turn_stop"]


@pytest.mark.rule("A61")
def test_a_quiet_json_answer_begins_with_white_space(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.gate("quiet json"), steps.text("at last")])
    session = alice.create()
    with alice.http.stream("POST", f"/sessions/{session}/turns", json=turn_body(prompt)) as response:
        assert response.status_code == 200
        chunks = response.iter_raw()
        first = next(chunks)
        assert first.strip() == b""
        model.open_gate("quiet json")
        assert json.loads(b"".join(chunks)) == {
            "stopReason": "end_turn",
            "messages": [{"role": "assistant", "content": "at last"}],
        }


# --- three views of one turn ---

MIXED = {"name": "pilot", "tools": [{"name": "tide_table", "trust": True}, {"name": "order_rope"}]}


def three_views(alice: Client, play: Any) -> list[tuple[list[Outcome], list[dict[str, Any]]]]:
    views = []
    for mode in ("none", "message", "delta"):
        session = alice.create(MIXED, tools=[client_tool("mine")])
        views.append((play(session, mode), alice.history(session)))
    return views


@pytest.mark.rule("A60", "A58", "A59", "A61", "A62", "A57")
@pytest.mark.parametrize(
    "answers",
    [
        [[steps.text("Hello", ", ", "sailor.")]],
        [[steps.thinking("a ", "b"), steps.text("c", "d")]],
        [[steps.thinking("only thoughts")]],
        [[steps.thinking("t"), steps.text("look"), steps.call("tide_table", {"harbour": "A"}, id="v1")], [steps.text("seen")]],
        [
            [steps.call("tide_table", {"harbour": "A"}, id="v1"), steps.call("tide_table", {"harbour": "B"}, id="v2")],
            [steps.text("more"), steps.call("whisper", {"words": "C"}, id="v3")],
            [steps.thinking("done"), steps.text("all")],
        ],
        [[steps.text("cut"), steps.finish("length")]],
        [[steps.finish("content_filter")]],
        [[steps.text("half"), steps.drop()]],
        [[steps.text("x"), steps.call("nonsense", {}, id="v1"), steps.call("tide_table", "[1]", id="v2")], [steps.text("ok")]],
    ],
)
def test_the_mode_changes_nothing_but_the_form(alice: Client, model: ModelServer, answers: Any) -> None:
    prompt = model.script(*answers)
    views = three_views(alice, lambda session, mode: [alice.turn(session, prompt, stream=mode)])
    (first,), first_history = views[0]
    for (outcome,), history in views:
        assert outcome.stop == first.stop
        assert by_step(outcome.messages) == by_step(first.messages)
        assert by_step(history) == by_step(first_history)
        assert by_step(history[1:]) == by_step(outcome.messages)


def by_step(messages: list[dict[str, Any]]) -> list[Any]:
    """Messages with the results of one step in an order of their own: tools that run beside each other may finish in any."""
    steps_of: list[Any] = []
    for message in messages:
        if message["role"] == "tool" and steps_of and isinstance(steps_of[-1], dict):
            steps_of[-1][message["toolCallId"]] = message["content"]
        elif message["role"] == "tool":
            steps_of.append({message["toolCallId"]: message["content"]})
        else:
            steps_of.append((message["role"], json.dumps(message["content"])))
    return steps_of


@pytest.mark.rule("A60", "A70", "A65", "A62")
def test_the_three_views_agree_over_permissions_and_client_results(alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.text("On it."),
            steps.call("mine", {"n": 1}, id="m1"),
            steps.call("order_rope", {"metres": 2}, id="m2"),
            steps.call("order_rope", {"metres": 3}, id="m3"),
        ],
        [steps.text("All set.")],
    )

    def play(session: str, mode: str) -> list[Outcome]:
        asked = alice.turn(session, prompt, stream=mode)
        return [asked, alice.turn(session, deny("m3", "no"), tool("m1", "r"), grant("m2"), stream=mode)]

    views = three_views(alice, play)
    for (asked, answered), history in views:
        assert (asked.stop, answered.stop) == ("tool_use", "end_turn")
        assert by_step(asked.messages) == by_step(views[0][0][0].messages)
        assert by_step(answered.messages) == by_step(views[0][0][1].messages)
        assert answered.results == {"m3": "Tool call denied: no", "m2": "2 m of grey rope ordered"}
        assert by_step(history) == by_step(views[0][1])
        without_ours = [message for message in history if message["role"] != "user" and message.get("toolCallId") != "m1"]
        assert by_step(without_ours) == by_step([*asked.messages, *answered.messages])


@pytest.mark.rule("A61")
def test_json_is_the_default_form(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("plain")])
    session = alice.create()
    response = alice.post(f"/sessions/{session}/turns", turn_body(prompt))
    assert response.headers["Content-Type"].split(";")[0] == "application/json"
    assert response.json() == {"stopReason": "end_turn", "messages": [{"role": "assistant", "content": "plain"}]}


@pytest.mark.rule("A80", "A48", "A23")
@pytest.mark.parametrize(
    ("agent", "mode"),
    [("bare", "message"), ("bare", "none"), ("bare", None), ("mute", "delta"), ("echo", "fast"), ("echo", ""), ("echo", 5)],
)
def test_a_stream_mode_that_is_not_offered_is_422(alice: Client, agent: str, mode: Any) -> None:
    session = alice.create(agent)
    body = {"messages": [user("hi")], **({} if mode is None else {"stream": mode})}
    response = alice.post(f"/sessions/{session}/turns", body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/stream"


# --- joining ---


@pytest.mark.rule("A120")
@pytest.mark.parametrize("mode", ["delta", "message"])
@pytest.mark.parametrize("by_header", [True, False])
def test_a_stream_resumed_at_any_position_gives_exactly_the_rest(
    alice: Client, model: ModelServer, mode: str, by_header: bool
) -> None:
    prompt = model.script(
        [steps.thinking("x", "y"), steps.text("a", "b"), steps.call("tide_table", {"harbour": "A"})], [steps.text("c", "d")]
    )
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    events = alice.turn(session, prompt, stream=mode).events
    for number, event in enumerate(events[:-1]):
        with alice.join(session, mode=mode, after=event.id, by_header=by_header) as joined:
            assert joined.rest() == events[number + 1 :]
    response = alice.get(f"/sessions/{session}/events/stream", params={"stream": mode, "after": events[-1].id})
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.rule("A120", "A60")
def test_a_delta_reader_may_go_on_as_a_message_reader(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.thinking("t"), steps.text("a", "b"), steps.text("c")])
    session = alice.create()
    events = alice.turn(session, prompt, stream="delta").events
    with alice.join(session, mode="message", after=events[0].id) as joined:
        names = [(event.name, event.data) for event in joined.rest()]
    assert names == [("thinking", {"thinking": "t"}), ("text", {"text": "abc"}), ("turn_stop", {"stopReason": "end_turn"})]


@pytest.mark.rule("A120", "A91")
def test_a_running_stream_is_joined_at_its_start_or_where_it_was_left_without_gap_or_repeat(
    alice: Client, model: ModelServer
) -> None:
    gate = "joined while running"
    prompt = model.script([steps.text("one ", "two "), steps.gate(gate), steps.text("three ", "four")])
    session = alice.create()
    with alice.stream(session, prompt) as stream:
        stream.until("turn_start")
        left_at = stream.until("text_delta")
        model.wait_gate(gate)
    with alice.join(session) as from_start, alice.join(session, after=left_at.id) as from_there:
        start = from_start.until("turn_start")
        model.open_gate(gate)
        everything = [start, *from_start.rest()]
        assert everything[-1].data == {"stopReason": "end_turn"}
        assert from_there.rest() == everything[everything.index(left_at) + 1 :]
    assert sse.rebuilt(everything) == [{"role": "assistant", "content": "one two three four"}]
    assert alice.history(session)[-1]["content"] == "one two three four"


@pytest.mark.rule("A120")
def test_nothing_running_and_nothing_new_is_204(alice: Client) -> None:
    session = alice.create()
    assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 204
    alice.turn(session, "hi")
    assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 204


@pytest.mark.rule("A120", "A80")
def test_positions_that_were_never_given_are_400_and_undeclared_modes_422(alice: Client) -> None:
    session, other = alice.create(), alice.create()
    position = alice.turn(other, "hi", stream="delta").events[0].id
    path = f"/sessions/{session}/events/stream"
    for bad in ("x", "-1", "999999999", "1e3", "💩", position, position + "0", "9" * 40):
        assert alice.get(path, params={"stream": "delta", "after": bad}).status_code == 400, bad
    assert alice.get(path, params={"stream": "delta"}, headers={"Last-Event-ID": "nonsense"}).status_code == 400
    for params in ({"stream": "none"}, {"stream": "fast"}):
        assert alice.get(path, params=params).status_code == 422
    bare = alice.create("bare")
    assert alice.get(f"/sessions/{bare}/events/stream", params={"stream": "message"}).status_code == 422


@pytest.mark.rule("A120")
def test_a_follower_stays_for_later_turns(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("again")])
    session = alice.create()
    first = alice.turn(session, prompt, stream="delta").events
    with alice.join(session, after=first[-1].id, follow=True) as follower:
        for _ in range(3):
            played = alice.turn(session, prompt, stream="delta").events
            assert [follower.next() for _ in played] == played


@pytest.mark.rule("A120")
def test_a_joined_stream_ends_with_the_turn_in_progress(alice: Client, model: ModelServer) -> None:
    gate = "two turns"
    quick, gated = model.script([steps.text("quick")]), model.script([steps.gate(gate), steps.text("slow")])
    session = alice.create()
    first = alice.turn(session, quick, stream="delta").events
    with alice.stream(session, gated) as stream:
        model.wait_gate(gate)
        with alice.join(session, after=first[0].id) as joined:
            got = [joined.next() for _ in first]
            assert got == [*first[1:], stream.until("turn_start")]
            model.open_gate(gate)
            assert [event.name for event in joined.rest()] == ["text_delta", "turn_stop"]
        stream.rest()


@pytest.mark.rule("A120", "A100")
def test_many_readers_of_one_session_all_see_the_same(alice: Client, server: Server, model: ModelServer) -> None:
    gate = "many readers"
    prompt = model.script([steps.text("a"), steps.gate(gate), *[steps.text(str(n)) for n in range(50)]])
    session = alice.create()
    seen: list[list[sse.SseEvent]] = [[] for _ in range(8)]
    joined = threading.Barrier(9)

    def read(number: int) -> None:
        with contextlib.closing(Client(server.origin(), server.keys.alice)) as reader, reader.join(session) as stream:
            stream.until("text_delta")
            joined.wait(90)
            stream.rest()
            seen[number] = stream.seen

    with alice.stream(session, prompt) as stream:
        model.wait_gate(gate)
        threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        joined.wait(90)
        model.open_gate(gate)
        stream.rest()
        for thread in threads:
            thread.join(90)
    assert all(one == stream.seen for one in seen)


# --- clients that go, and clients that dawdle ---


@pytest.mark.rule("A91", "A66")
def test_a_turn_with_tools_continues_when_its_client_disconnects(alice: Client, server: Server, model: ModelServer) -> None:
    gate = "hung up"
    prompt = model.script(
        [steps.text("wait"), steps.gate(gate), steps.call("tide_table", {"harbour": gate}, id="g1")], [steps.text("complete")]
    )
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate(gate)
    with alice.join(session) as joined:
        joined.until("turn_start")
        model.open_gate(gate)
        assert joined.rest()[-1].data == {"stopReason": "end_turn"}
    assert [message["role"] for message in alice.history(session)] == ["user", "assistant", "tool", "assistant"]
    assert server.tools.executions("tide_table", harbour=gate) == 1


@pytest.mark.rule("A91")
def test_a_client_that_disconnects_before_a_json_response_loses_nothing(
    alice: Client, server: Server, model: ModelServer
) -> None:
    gate = "hung up json"
    prompt = model.script([steps.gate(gate), steps.text("complete")])
    session = alice.create()
    body = json.dumps(turn_body(prompt)).encode()
    with socket.create_connection(("127.0.0.1", server.ports[0])) as connection:
        head = (
            f"POST /aap/v3/sessions/{session}/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        model.wait_gate(gate)
    with alice.join(session) as joined:
        joined.until("turn_start")
        model.open_gate(gate)
        joined.rest()
    assert alice.history(session)[-1] == {"role": "assistant", "content": "complete"}


@pytest.mark.rule("A100", "A91")
def test_a_slow_reader_delays_no_other_and_gets_everything(alice: Client, server: Server, model: ModelServer) -> None:
    piece = "0123456789" * 400
    # Just within AGENTHOST_MESSAGE_BYTES.
    prompt = model.script([steps.text(*[piece] * 1000)])
    session, other = alice.create(), alice.create()
    body = json.dumps(turn_body(prompt, stream="delta")).encode()
    head = (
        f"POST /aap/v3/sessions/{session}/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice.key}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.ports[0]))
        connection.settimeout(120)
        connection.sendall(head.encode() + body)
        request = model.wait_request(prompt)
        assert model.wait_ended(request, timeout=120) == "done"
        until = time.monotonic() + 120
        while len(alice.history(session)) < 2:
            assert time.monotonic() < until, "the turn waits for its reader"
        assert alice.turn(other, "hello").stop == "end_turn"
        response = http.client.HTTPResponse(connection)
        response.begin()
        events = sse.parse(response.read())
        response.close()
    text = "".join(event.data.get("delta", "") for event in events)
    assert text == piece * 1000
    assert events[-1].data == {"stopReason": "end_turn"}
