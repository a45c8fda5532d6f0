"""The examples of clients against bytes: streams as the standard allows them, lost answers, waits, quiet connections."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from tests.e2e.client_examples.conftest import COMPILED, Start
from tests.fakes.byte_server import LOST, Answer, ByteServer, document, stream

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("start", COMPILED, indirect=True)]


def event(position: str, name: str, data: str) -> bytes:
    return f"id: {position}\nevent: {name}\ndata: {data}\n\n".encode()


START = event("p1", "turn_start", "{}")
STOP = event("p9", "turn_stop", '{"stopReason":"end_turn"}')


def limited(status: int, seconds: str) -> Answer:
    return document(status, {"title": "Busy", "detail": "Slow down.", "status": status}, Retry_After=seconds)


def talk(start: Start, scripted: ByteServer, *answers: Answer, **environment: str) -> tuple[int, str, str]:
    """Send one message; returns the exit code, the answer and the notes."""
    scripted.answers = list(answers)
    chat = start(scripted.origin, agent="bytes", **environment)
    chat.type("Hello")
    code = chat.finish()
    return code, chat.answer.text, chat.notes.text


def test_all_forms_of_server_sent_events_are_read(start: Start, scripted: ByteServer) -> None:
    written = (
        b": a comment\nevent: turn_start\ndata: {}\n\n"
        b"event: text_delta\r\ndata: {\"delta\":\r\ndata: \"CRLF \"}\r\n\r\n"
        b"event: text_delta\rdata:{\"delta\":\"CR \"}\r\r"
        b"event: text_delta\n: between\nretry: 5\nid\ndata: {\"delta\":\"LF \\\"\\u00e9\\\\ \"}\n\n"
        b"event: nothing\n\n"
        b"event: from_the_future\ndata: [1, -2.5e3, true, null, {}, []]\n\n"
        + "event: text_delta\ndata: {\"delta\":\"Grüße 日本 👩‍👩‍👧\"}\n\n".encode()
        + STOP
    )  # fmt: skip
    # Within a line end, a name, a line and characters of two, three and four bytes.
    places = sorted(written.index(each.encode()) + 1 for each in ("xt_delta", "\r\ndata", "\\u00e9", "ü", "本", "👧"))
    pieces = [written[begin:end] for begin, end in pairwise([0, *places, len(written)])]
    code, answer, notes = talk(start, scripted, stream(*pieces, pause=0.15))
    assert (code, answer) == (0, 'CRLF CR LF "é\\ Grüße 日本 👩‍👩‍👧\n'), notes


def test_lost_answers_are_repeated_and_cut_streams_resumed(start: Start, scripted: ByteServer) -> None:
    first = event("p2", "text_delta", '{"delta":"once "}')
    incomplete = b'id: p3\nevent: text_delta\ndata: {"delta":"never "}\n'
    # A client may lose what it has received and not read when its connection breaks, so this waits until it has read.
    has_read = threading.Event()
    scripted.answers = [
        LOST,
        stream(is_complete=False),
        stream(START, first, incomplete, is_complete=False, cut=has_read),
        LOST,
        document(502, "no JSON object"),
        stream(event("p3", "text_delta", '{"delta":"only"}')),
        stream(STOP),
    ]
    chat = start(scripted.origin, agent="bytes")
    chat.type("Hello")
    chat.answer.expect("once ")
    has_read.set()
    assert (chat.finish(), chat.answer.text) == (0, "once only\n"), chat.notes.text
    sent, resumed = scripted.requests[:3], scripted.requests[3:]
    assert [each.line for each in sent] == ["POST /aap/v3/sessions/one/turns HTTP/1.1"] * 3
    assert len({each.headers["idempotency-key"] for each in sent}) == len({each.body for each in sent}) == 1
    assert [each.line for each in resumed] == ["GET /aap/v3/sessions/one/events/stream?stream=delta HTTP/1.1"] * 4
    assert [each.headers["last-event-id"] for each in resumed] == ["p2", "p2", "p2", "p3"]


def test_a_refusal_with_retry_after_is_waited_for(start: Start, scripted: ByteServer) -> None:
    began = time.monotonic()
    code, answer, notes = talk(
        start, scripted, limited(429, "1"), limited(503, "0"), stream(START, is_complete=False), limited(503, "1"), stream(STOP)
    )
    assert (code, answer) == (0, "\n"), notes
    assert time.monotonic() - began >= 2.5
    assert notes.count("[Slow down. Waiting 1 s.]") == 2
    assert len({each.headers["idempotency-key"] for each in scripted.requests[:3]}) == 1


@pytest.mark.parametrize("seconds", ["3600", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_a_wait_that_is_too_long_or_unclear_is_an_error(start: Start, scripted: ByteServer, seconds: str) -> None:
    code, _, notes = talk(start, scripted, limited(429, seconds))
    assert (code, len(scripted.requests)) == (1, 1)
    assert "429 Busy: Slow down." in notes


def test_an_error_is_shown_with_its_code_message_and_places(start: Start, scripted: ByteServer) -> None:
    fault = {"pointer": "/messages/0/content", "detail": "It is too \u001b[31mred."}
    problem = {"title": "Unprocessable Content", "detail": "It breaks a rule.", "instance": "req_1", "errors": [fault]}
    code, _, notes = talk(start, scripted, document(422, problem))
    assert code == 1
    # The colour's escape character does not reach the terminal.
    expected = "[422 Unprocessable Content: It breaks a rule. (req_1)\n  /messages/0/content: It is too \ufffd[31mred.]\n"
    assert notes.endswith(expected), notes


@pytest.mark.parametrize(
    "answer", [Answer((b"HTTP/1.1 204 Given\r\nConnection: close\r\n\r\n",)), document(410, {"title": "Gone"})]
)
def test_events_that_are_gone_are_an_error(start: Start, scripted: ByteServer, answer: Answer) -> None:
    code, _, notes = talk(start, scripted, stream(START, is_complete=False), answer)
    assert (code, len(scripted.requests)) == (1, 2)
    assert "read the history" in notes or "410 Gone" in notes


def test_a_connection_without_a_byte_is_given_up(start: Start, scripted: ByteServer) -> None:
    held = stream(START, event("p2", "text_delta", '{"delta":"still "}'), is_complete=False, is_held=True)
    silent = Answer((), is_held=True)
    rest = stream(event("p3", "text_delta", '{"delta":"there"}'), STOP)
    code, answer, notes = talk(start, scripted, held, silent, rest, AGENTHOST_QUIET_SECONDS="5")
    assert (code, answer) == (0, "still there\n"), notes
    assert [each.headers.get("last-event-id") for each in scripted.requests] == [None, "p2", "p2"]
