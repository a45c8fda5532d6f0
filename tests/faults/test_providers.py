"""Providers that drop connections, hang, send too much or broken text, and a client that never reads."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from tests.e2e import machine_speed, sse
from tests.e2e.client import user
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, attempts
from tests.faults.cluster import Cluster, wait_for

FLOOD = 10 * 2**20


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


@pytest.mark.rule("A84", "A85")
@pytest.mark.parametrize(
    "fault", [steps.drop(), steps.close(), steps.hang(), steps.error_object()], ids=lambda step: str(step["do"])
)
def test_a_provider_that_breaks_off_fails_only_its_turn(cluster: Cluster, model: ModelServer, fault: steps.Step) -> None:
    alice = cluster.server.alice
    session = alice.create("impatient")
    silent, partial = model.script([fault]), model.script([steps.text("half "), fault])
    in_time = machine_speed.bound(10, lambda: alice.turn(session, "hello"))
    said_before = alice.history(session)
    before = time.monotonic()
    with alice.stream(session, partial) as stream:
        events = stream.rest()
    assert time.monotonic() - before < in_time
    assert events[-1].data == {"stopReason": "error"}
    assert alice.history(session) == [*said_before, user(partial), {"role": "assistant", "content": "half "}]
    assert alice.turn(session, silent).stop == "error"
    # A request is repeated only before its first output, and only as often as the agent allows.
    assert len(model.requests_of(partial)) == 1
    assert len(model.requests_of(silent)) <= 2
    assert alice.turn(session, "fine").text == "echo: fine"
    assert "scripted failure" not in json.dumps([event.data for event in events])


@pytest.mark.rule("A84")
def test_a_request_that_fails_before_its_first_output_is_repeated(cluster: Cluster, model: ModelServer) -> None:
    alice = cluster.server.alice
    prompt = model.script(attempts([steps.drop()], [steps.text("here")]))
    assert alice.turn(alice.create("impatient"), prompt).text == "here"
    assert len(model.requests_of(prompt)) == 2


@pytest.mark.rule("A58")
def test_incomplete_characters_are_never_sent(cluster: Cluster, model: ModelServer) -> None:
    alice = cluster.server.alice
    cut = [steps.text("a"), *steps.split_text("\N{GRINNING FACE}", 2), steps.text("z")]
    escaped = json.dumps({"choices": [{"index": 0, "delta": {"content": "\ud83d"}, "finish_reason": None}]})
    lonely = [steps.text("b"), steps.raw(f"data: {escaped}\n\n".encode()), steps.text("y")]
    broken = [steps.text("c"), steps.split_text("\N{GRINNING FACE}", 2)[0], steps.drop()]
    for script, expected, stop in (
        (cut, "a\N{GRINNING FACE}z", "end_turn"),
        (lonely, "b\ufffdy", "end_turn"),
        (broken, "c", "error"),
    ):
        session = alice.create("impatient")
        outcome = alice.turn(session, model.script(script), stream="delta")
        assert (outcome.text, outcome.stop) == (expected, stop)
        assert alice.history(session)[-1]["content"] == expected


@pytest.mark.rule("A58", "A93")
def test_an_answer_of_ten_megabytes_arrives_completely(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    alice = server.alice
    line = "0123456789abcde\n"
    piece = line * 1024
    prompt = model.script([steps.text(*[piece] * (FLOOD // len(piece)))])
    session, neighbour = alice.create(), alice.create()
    in_time = machine_speed.bound(8, lambda: alice.turn(neighbour, "hello"))
    before = [memory_of(process.popen.pid) for process in (*server.webs, *server.workers)]
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        asked = time.monotonic()
        assert server.alice.turn(neighbour, "am I held up?").text == "echo: am I held up?"
        held_up = time.monotonic() - asked
        events = stream.rest()
    assert held_up < in_time
    assert events[-1].data == {"stopReason": "end_turn"}
    (answer,) = sse.rebuilt(stream.seen)
    assert len(answer["content"]) == FLOOD
    assert answer["content"] == line * (FLOOD // len(line))
    assert alice.history(session)[-1] == answer
    after = [memory_of(process.popen.pid) for process in (*server.webs, *server.workers)]
    assert max(new - old for new, old in zip(after, before, strict=True)) < 25 * FLOOD, (before, after)
    assert alice.turn(neighbour, "well?").text == "echo: well?"


@pytest.mark.rule("A58", "A120")
def test_a_client_that_never_reads_delays_no_other_client(cluster: Cluster, model: ModelServer) -> None:
    """Its stream waits while its socket is full; the turn continues, and memory stays bounded."""
    server = cluster.server
    alice = server.alice
    piece = "0123456789abcde\n" * 512
    prompt = model.script([steps.text(*[piece] * 640)])
    session = alice.create()
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "stream": "delta"}).encode()
    head = (
        f"POST /aap/v3/sessions/{session}/turns HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.keys.alice}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    web = server.webs[0].popen.pid
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", server.ports[0]))
    with deaf:
        before = memory_of(web)
        deaf.sendall(head.encode() + body)
        wait_for(
            lambda: cluster.ask(
                "select 1 from sessions_app_turn where state = 'done' and session_id = (select id from"
                " sessions_app_session where public_id = %s)",
                session,
            ),
            "the turn ends",
        )
        assert alice.turn(alice.create(), "and I?").text == "echo: and I?"
        assert memory_of(web) - before < 60 * 2**20
        assert len(alice.history(session)[-1]["content"]) == 640 * len(piece)
