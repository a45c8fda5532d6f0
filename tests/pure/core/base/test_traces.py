"""The trace of a turn, as it is stored and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents_app import tracing
from agents_app.tracing import SERVER, Context, Span, Tracing
from sessions_app.core.base import log_context, traces

SENT = Context("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True, state="office=3")
BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    """The spans that have ended; tracing is on, and the current one is a request's."""
    spans: list[Span] = []
    tracing.install(Tracing(spans.append))
    token = tracing.current.set(tracing.begin_trace("POST", SERVER, SENT, {}))
    yield spans
    tracing.current.reset(token)
    tracing.install(None)


def test_a_turns_span_is_recorded_at_its_end_with_the_id_that_was_stored(ended: list[Span]) -> None:
    stored = traces.of_new_turn()
    assert stored is not None
    request, turn = tracing.context(), traces.context_of(stored)
    assert request is not None
    assert turn is not None
    traces.ended(stored, BEGAN, "harbour", "", {"agenthost.turn.outcome": "end_turn"})
    (span,) = ended
    assert (span.context, span.parent_id) == (turn, request.span_id)
    assert turn.state == "office=3"
    assert span.name == "invoke_agent harbour"
    assert span.began == 1_767_323_045_678_901_000
    assert span.error is None


def test_a_queued_messages_turn_is_below_the_request_that_sent_the_message(ended: list[Span]) -> None:
    sent = traces.of_request()
    sender = tracing.context()
    token = tracing.current.set(tracing.begin_trace("other", SERVER, None, {}))
    stored = traces.of_new_turn(sent)
    tracing.current.reset(token)
    found = traces.read(stored)
    assert found is not None
    assert sender is not None
    assert (found.context.trace_id, found.parent, found.context.state) == (sender.trace_id, sender.span_id, sender.state)


def test_nothing_is_stored_while_tracing_is_off_and_what_was_stored_records_nothing(ended: list[Span]) -> None:
    stored = traces.of_new_turn()
    tracing.install(None)
    assert traces.of_new_turn() is None
    assert traces.context_of(stored) is None
    traces.accepted(stored, 1, 1, "default")
    traces.answered(stored, [("wait", {}, BEGAN)], SENT)
    traces.ended(stored, BEGAN, "harbour", "", {})
    assert ended == []


@pytest.mark.parametrize("stored", [None, "", "nonsense", "00-1-2-03 x\ny"])
def test_what_cannot_be_read_is_no_trace(ended: list[Span], stored: str | None) -> None:
    assert traces.read(stored) is None
    traces.ended(stored, BEGAN, "harbour", "", {})
    assert ended == []


def test_a_trace_that_is_not_sampled_stays_so(ended: list[Span]) -> None:
    tracing.current.set(tracing.begin_trace("POST", SERVER, replace(SENT, sampled=False), {}))
    stored = traces.of_new_turn()
    turn = traces.context_of(stored)
    assert turn is not None
    assert not turn.sampled
    traces.accepted(stored, 1, 1, "default")
    traces.claimed(turn, BEGAN, "default")
    traces.ended(stored, BEGAN, "harbour", "error", {})
    assert ended == []


def test_a_turns_message_and_its_claim_name_its_queue(ended: list[Span]) -> None:
    stored = traces.of_new_turn()
    turn = traces.context_of(stored)
    assert turn is not None
    traces.accepted(stored, 1, 1, "heavy")
    traces.claimed(turn, BEGAN, "heavy")
    queues = {span.name: span.attributes.get("agenthost.queue") for span in ended}
    assert queues == {"accept turn": None, "send agenthost.turns": "heavy", "receive agenthost.turns": "heavy"}


def test_waits_link_the_request_that_answers_if_it_is_of_another_trace(ended: list[Span]) -> None:
    stored, own = traces.of_new_turn(), tracing.context()
    other = replace(SENT, trace_id="f" * 32)
    traces.answered(stored, [("a", {}, BEGAN), ("b", {}, BEGAN + timedelta(seconds=1))], other)
    traces.answered(stored, [("c", {}, BEGAN)], own)
    assert [(each.name, each.links) for each in ended] == [("a", [other]), ("b", [other]), ("c", [])]


def test_log_lines_have_the_ids_of_the_current_span(ended: list[Span]) -> None:
    with tracing.span("inner") as span:
        assert span.context is not None
        found = log_context.facts()
        assert (found["trace_id"], found["span_id"]) == (SENT.trace_id, span.context.span_id)
    tracing.current.set(None)
    assert "trace_id" not in log_context.facts()
