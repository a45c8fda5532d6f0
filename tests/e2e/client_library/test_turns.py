"""Turns with the client library: streams, resuming, stopping, repeating."""

from __future__ import annotations

import base64
import re
import secrets

import pytest

from agenthost.client import Conflict, Text, TextDelta, ThinkingDelta, TurnStart, TurnStop
from tests.e2e.client_library.conftest import Connect
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.cutting_proxy import CuttingProxy
from tests.fakes.model_server import ModelServer

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sent(proxy: CuttingProxy, path: str, header: str) -> list[str]:
    """The values of a header in the requests to this path."""
    heads = [head for head in proxy.heads if path in head.partition("\r\n")[0]]
    return [found[1] for head in heads if (found := re.search(rf"(?i)\r\n{header}: (\S+)", head))]


def test_an_answer_streams_as_typed_events(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.thinking("hm"), steps.text("one ", "two")])
    turn = connect().create_session("echo").send(prompt)
    happened = list(turn)
    assert happened[0] == TurnStart()
    assert ThinkingDelta("hm") in happened
    assert "".join(each.text for each in happened if isinstance(each, TextDelta)) == "one two"
    assert happened[-1] == TurnStop("end_turn")
    assert (turn.text, turn.stop_reason) == ("one two", "end_turn")


@pytest.mark.parametrize("mode", ["message", "none"])
def test_whole_messages_come_in_the_other_modes(connect: Connect, model: ModelServer, mode: str) -> None:
    prompt = model.script([steps.text("one ", "two")])
    turn = connect().create_session("echo", mode=mode).send(prompt)
    assert list(turn) == [TurnStart(), Text("one two"), TurnStop("end_turn")]
    assert turn.id.startswith("turn_")


def test_a_cut_stream_is_resumed_without_a_gap_or_a_repeat(connect: Connect, model: ModelServer, proxy: CuttingProxy) -> None:
    words = [f"word{number} " for number in range(30)]
    pieces = [steps.text(*words[:9]), steps.gate("one"), steps.text(*words[9:19]), steps.gate("two"), steps.text(*words[19:])]
    prompt = model.script(pieces)
    session = connect(proxy.origin).create_session("echo")
    proxy.cut_within(b"word12 ")
    proxy.cut_within(b"word21 ")
    seen = ""
    for event in session.send(prompt):
        seen += event.text if isinstance(event, TextDelta) else ""
        if seen.endswith("word8 "):
            model.open_gate("one")
        if "word18 " in seen:
            model.open_gate("two")
    assert seen == "".join(words)
    assert len(sent(proxy, "/events/stream", "last-event-id")) == 2
    assert len(model.requests_of(prompt)) == 1


@pytest.mark.parametrize("mode", ["delta", "none"])
def test_a_request_without_an_answer_is_repeated_and_runs_once(
    connect: Connect, model: ModelServer, proxy: CuttingProxy, mode: str
) -> None:
    prompt = model.script([steps.text("once only")])
    session = connect(proxy.origin).create_session("echo", mode=mode)
    proxy.drop_answers(2)
    assert session.send(prompt).result().text == "once only"
    assert len(model.requests_of(prompt)) == 1
    keys = sent(proxy, "/turns ", "idempotency-key")
    assert (len(keys), len(set(keys))) == (3, 1)


def test_another_client_continues_after_a_position(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.text("before "), steps.gate("left"), steps.text("after")])
    session = connect().create_session("echo")
    reading = session.send(prompt)
    for event in reading:
        if event == TextDelta("before "):
            break
    position = reading.position
    model.open_gate("left")
    joined = connect().session(session.id).join(after=position).result()
    assert (joined.stop_reason, joined.text) == ("end_turn", "after")
    assert list(connect().session(session.id).join()) == []


def test_a_running_turn_refuses_another_and_can_be_cancelled(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.text("begun "), steps.gate("never"), steps.text("ended")])
    session = connect().create_session("echo")
    turn = session.send(prompt)
    for event in turn:
        if event == TextDelta("begun "):
            with pytest.raises(Conflict) as refused:
                session.send("Are you there?").result()
            assert refused.value.status == 409
            assert session.cancel("enough").cancelled
    assert (turn.text, turn.stop_reason) == ("begun ", "end_turn")
    assert not session.cancel().cancelled


def test_a_key_joins_the_first_turn_and_the_first_session(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.text("first")], [steps.text("second")])
    client = connect()
    order = secrets.token_hex(8)
    session = client.create_session("echo", idempotency_key=order)
    assert client.create_session("echo", idempotency_key=order).id == session.id
    first = session.send(prompt, idempotency_key="message-1").result()
    assert session.send(prompt, idempotency_key="message-1").result() == first
    assert len(model.requests_of(prompt)) == 1


def test_options_images_and_headers_arrive(connect: Connect, model: ModelServer, proxy: CuttingProxy) -> None:
    prompt = model.script([steps.text("seen")])
    client = connect(proxy.origin)
    session = client.create_session("pilot", options={"tone": "warm"}, traceparent=TRACEPARENT)
    turn = session.send(prompt, images=[PIXEL], options={"units": "imperial"}, deadline=300, traceparent=TRACEPARENT)
    assert turn.result().text == "seen"
    request = model.requests_of(prompt)[0]
    assert "Tone: warm. Units: imperial." in str(request.messages[0]["content"])
    assert [part["type"] for part in request.messages[-1]["content"]] == ["text", "image_url"]
    assert session.info().options == {"tone": "warm", "units": "imperial"}
    assert sent(proxy, "/sessions ", "traceparent") == [TRACEPARENT]
    assert sent(proxy, "/turns ", "traceparent") == [TRACEPARENT]
    assert sent(proxy, "/turns ", "x-turn-deadline") == ["300"]


def test_sessions_are_listed_read_and_deleted(connect: Connect, hall: Server, model: ModelServer) -> None:
    (key,) = hall.make_keys(f"t{secrets.token_hex(4)}/mine/*/")
    client = connect(key=key)
    made = [client.create_session("echo") for _ in range(2)]
    assert [(each.id, each.agent) for each in client.sessions()] == [(each.id, "echo") for each in reversed(made)]
    prompt = model.script([steps.text("stored")])
    made[0].send(prompt).result()
    assert made[0].history() == [{"role": "user", "content": prompt}, {"role": "assistant", "content": "stored"}]
    made[0].delete()
    client.delete_session(made[1].id)
    assert list(client.sessions()) == []


@pytest.mark.slow
def test_all_pages_of_sessions_are_listed(connect: Connect, hall: Server) -> None:
    (key,) = hall.make_keys(f"t{secrets.token_hex(4)}/mine/*/")
    client = connect(key=key)
    made = [client.create_session("echo").id for _ in range(103)]
    assert [each.id for each in client.sessions()] == made[::-1]
