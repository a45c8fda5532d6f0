"""Encoding core events as server-sent events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.aap.stream import KEEP_ALIVE, Mode, RunEnd, SSEEncoder, stop_reason
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log.journal.rows import text_of
from sessions_app.core.log.journal.types import Event


def event(kind: str, seq: int = 1, **payload: Any) -> Event:
    return Event(seq, 5, kind, exact_json.dumps({"turn": "turn_x", **payload}))


def encoded(mode: Mode, *events: Event) -> str:
    encoder = SSEEncoder(mode, lambda seq: f"p{seq}")
    return b"".join(map(encoder.encode, events)).decode()


def shown(mode: Mode, *events: Event) -> list[tuple[str, Any]]:
    """What a client of the protocol reads: names and data."""
    found = []
    for block in encoded(mode, *events).split("\n\n")[:-1]:
        position, name, data = block.split("\n")
        assert position.startswith("id: p")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


A_TURN = [
    event(Kind.TURN_STARTED, 1, run=1, message={"content": "hello"}),
    event(Kind.RUN_STARTED, 2, run=1, takeover=0),
    event(Kind.STEP_STARTED, 3, step=1),
    event(Kind.THINKING_OPENED, 4, step=1, part="a"),
    event(Kind.THINKING_DELTA, 5, step=1, part="a", delta="hm"),
    event(Kind.TEXT_OPENED, 6, step=1, part="b"),
    event(Kind.TEXT_DELTA, 7, step=1, part="b", delta="On "),
    event(Kind.TEXT_DELTA, 8, step=1, part="b", delta=""),
    event(Kind.TEXT_DELTA, 9, step=1, part="b", delta="it.\u2028\n🧑‍🚀"),
    event(Kind.CALL_OPENED, 10, step=1, part="c", call="k1", name="tide_table"),
    event(Kind.CALL_ARGUMENTS, 11, call="k1", delta="{"),
    event(Kind.THINKING_DONE, 12, step=1, thinking="hm"),
    event(Kind.TEXT_DONE, 13, step=1, text="On it.\u2028\n🧑‍🚀"),
    event(Kind.CALL_READY, 14, step=1, call="k1", name="tide_table", input={"n": 2**70, "f": 1.0}, runner="server", asks=False),
    event(Kind.STEP_DONE, 15, step=1, usage={"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0}),
    event(Kind.CALL_RUNNING, 16, call="k1"),
    event(Kind.CALL_FINISHED, 17, call="k1", content=[{"type": "text", "text": "high"}], failed=False, by="server", shown=True),
    event("a_kind_of_a_newer_release", 18),
    event(Kind.RUN_PAUSED, 19, run=1),
]


@pytest.mark.rule("A55", "A56", "A58")
def test_delta_mode_sends_text_in_pieces() -> None:
    assert shown("delta", *A_TURN) == [
        ("turn_start", {}),
        ("thinking_delta", {"delta": "hm"}),
        ("text_delta", {"delta": "On "}),
        ("text_delta", {"delta": "it.\u2028\n🧑‍🚀"}),
        ("tool_call", {"toolCallId": "k1", "name": "tide_table", "input": {"n": 2**70, "f": 1.0}}),
        ("tool_result", {"toolCallId": "k1", "content": [{"type": "text", "text": "high"}]}),
        ("turn_stop", {"stopReason": "tool_use"}),
    ]


@pytest.mark.rule("A10")
@given(st.text(min_size=1))
def test_a_delta_has_its_text_exactly(delta: str) -> None:
    stored = text_of(Happening(Kind.TEXT_DELTA, {"turn": "turn_x", "step": 1, "part": "b", "delta": delta}))
    data = json.dumps({"delta": delta}, ensure_ascii=False, separators=(",", ":"))
    assert encoded("delta", Event(7, 5, Kind.TEXT_DELTA, stored)) == f"id: p7\nevent: text_delta\ndata: {data}\n\n"


@pytest.mark.rule("A55", "A56", "A59")
def test_message_mode_sends_each_message_when_it_is_complete() -> None:
    assert [name for name, _ in shown("message", *A_TURN)] == [
        "turn_start",
        "thinking",
        "text",
        "tool_call",
        "tool_result",
        "turn_stop",
    ]
    empty = event(Kind.TEXT_DONE, 1, step=1, text=""), event(Kind.THINKING_DONE, 2, step=1, thinking="")
    assert shown("message", *empty) == []


@pytest.mark.rule("A54", "A97")
def test_an_event_is_three_lines_and_an_empty_one() -> None:
    assert encoded("delta", A_TURN[0]) == "id: p1\nevent: turn_start\ndata: {}\n\n"
    assert encoded("delta", A_TURN[13]).split("\n")[2:] == [
        'data: {"toolCallId":"k1","name":"tide_table","input":{"n":1180591620717411303424,"f":1.0}}',
        "",
        "",
    ]
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.count(b"\n") == 1


@pytest.mark.rule("A53")
def test_the_opening_is_the_turn_start_of_the_run() -> None:
    assert SSEEncoder("delta", str).opening(7) == b"id: 7\nevent: turn_start\ndata: {}\n\n"


@pytest.mark.rule("A57")
def test_thinking_after_text_is_not_sent() -> None:
    late = (
        event(Kind.THINKING_OPENED, 1, step=1, part="a", late=True),
        event(Kind.THINKING_DELTA, 2, step=1, part="a", delta="x", late=True),
    )
    assert shown("delta", *late) == []


@pytest.mark.rule("A65", "A76")
def test_a_clients_own_results_are_not_sent_back_to_it() -> None:
    own = event(Kind.CALL_FINISHED, 1, call="k", content="x", failed=False, by="client", shown=False)
    closed = event(Kind.CALL_DENIED, 2, call="k", reason="", content="Tool call denied", shown=False)
    denied = event(Kind.CALL_DENIED, 3, call="k", reason="", content="Tool call denied", shown=True)
    assert shown("delta", own, closed, denied) == [("tool_result", {"toolCallId": "k", "content": "Tool call denied"})]


@pytest.mark.rule("A18", "A121")
@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (event(Kind.RUN_PAUSED, run=1), "tool_use"),
        (event(Kind.TURN_ENDED, run=1, reason="end_turn", in_run=True), "end_turn"),
        (event(Kind.TURN_ENDED, run=1, reason="max_tokens", in_run=True), "max_tokens"),
        (event(Kind.TURN_ENDED, run=1, reason="refusal", in_run=True), "refusal"),
        (event(Kind.TURN_FAILED, run=1, error="provider_unavailable", in_run=True), "error"),
        (event(Kind.TURN_CANCELLED, run=1, reason="end_turn", cause="client", in_run=True), "end_turn"),
        (event(Kind.TURN_CANCELLED, run=1, reason="error", cause="deleted", in_run=True), "error"),
    ],
)
def test_a_run_ends_with_its_reason(last: Event, reason: str) -> None:
    assert stop_reason(last) == reason
    assert shown("delta", last) == shown("message", last) == [("turn_stop", {"stopReason": reason})]


@pytest.mark.rule("A54", "A84")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_a_clients_own_refused_key_is_a_comment_before_the_turn_stop(mode: Mode) -> None:
    own = event(Kind.TURN_FAILED, 7, run=1, error="provider_key_refused", in_run=True)
    stop = 'id: p7\nevent: turn_stop\ndata: {"stopReason":"error"}\n\n'
    assert encoded(mode, own) == f": error provider_key_refused\n{stop}"
    operators = event(Kind.TURN_FAILED, 7, run=1, error="provider_failed", in_run=True)
    assert encoded(mode, operators) == stop


@pytest.mark.rule("A56")
@pytest.mark.parametrize(
    "last",
    [
        event(Kind.TURN_CANCELLED, run=1, reason="end_turn", cause="replaced", in_run=False),
        event(Kind.TURN_FAILED, run=1, error="limit", in_run=False),
    ],
)
def test_a_turn_that_ends_while_it_waits_has_no_second_turn_stop(last: Event) -> None:
    assert stop_reason(last) is None
    assert shown("delta", last) == []


# --- where a stream is over ---

FIRST = [event(Kind.TURN_STARTED, 10, run=1), event(Kind.TEXT_DELTA, 11, delta="x"), event(Kind.RUN_PAUSED, 12, run=1)]
SECOND = [event(Kind.TURN_RESUMED, 20, run=2), event(Kind.TURN_ENDED, 21, run=2, reason="end_turn", in_run=True)]


def last_read(end: RunEnd, events: list[Event]) -> int | None:
    return next((each.seq for each in events if end.reached(each)), None)


@pytest.mark.rule("A56", "A120")
def test_a_turns_own_stream_ends_with_its_turn_stop() -> None:
    assert last_read(RunEnd(10, inside=True), [*FIRST[1:], *SECOND]) == 12


@pytest.mark.rule("A120")
def test_a_stream_joined_from_an_earlier_turn_goes_on_to_the_end_of_the_one_in_progress() -> None:
    assert last_read(RunEnd(20), [*FIRST[1:], *SECOND]) == 21


@pytest.mark.rule("A120")
def test_a_stream_joined_when_nothing_runs_ends_with_the_newest_event() -> None:
    assert last_read(RunEnd(12), FIRST[1:]) == 12
    silent = event(Kind.TURN_CANCELLED, 13, run=1, reason="end_turn", cause="client", in_run=False)
    assert last_read(RunEnd(13), [*FIRST[1:], silent]) == 13


@pytest.mark.rule("A120")
def test_a_stream_is_never_cut_within_a_run_that_began_meanwhile() -> None:
    assert last_read(RunEnd(11), [*FIRST, *SECOND]) == 12


@pytest.mark.rule("A92", "A120")
def test_every_stream_of_a_session_ends_when_it_is_deleted() -> None:
    gone = event(Kind.SESSION_DELETED, 13)
    assert last_read(RunEnd(None), [*FIRST, gone]) == 13
    assert last_read(RunEnd(99, inside=True), [gone]) == 13


@pytest.mark.rule("A120")
def test_a_stream_that_follows_has_no_end() -> None:
    assert last_read(RunEnd(None), [*FIRST, *SECOND]) is None
