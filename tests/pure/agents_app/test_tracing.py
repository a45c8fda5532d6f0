"""Contexts of traces, sampling, and what a span keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry import trace

from agents_app import tracing
from agents_app.tracing import CLIENT, SERVER, Context, Sampler, Span, Tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = Context(TRACE, PARENT, sampled=True, state="office=3")


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    """The spans that have ended; tracing is on."""
    spans: list[Span] = []
    tracing.install(Tracing(spans.append))
    token = tracing.current.set(None)
    yield spans
    tracing.current.reset(token)
    tracing.install(None)


@pytest.mark.parametrize(
    ("sent", "sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f" 00-{TRACE}-{PARENT}-03 ", True),
        # Of later versions the known part counts.
        (f"42-{TRACE}-{PARENT}-01-more", True),
    ],
)
def test_a_traceparent_is_read_and_written(sent: str, sampled: bool) -> None:
    found = tracing.parse(sent)
    assert found == Context(TRACE, PARENT, sampled)
    assert found.traceparent == f"00-{TRACE}-{PARENT}-{'01' if sampled else '00'}"


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "00",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00-{TRACE}٣-{PARENT}-01",
    ],
)
def test_a_malformed_traceparent_is_none(sent: str) -> None:
    assert tracing.parse(sent.replace("\n", "\nx")) is None


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("office=3", "office=3"),
        ("a=1 , b@x=2,", "a=1,b@x=2"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a", ""),
        ("a=1\r\nx: y", ""),
        (",".join(f"k{number}=v" for number in range(33)), ""),
        ("a=" + "x" * 600, ""),
    ],
)
def test_a_malformed_tracestate_is_dropped(sent: str, kept: str) -> None:
    assert tracing.parse(SENT.traceparent, sent) == replace(SENT, state=kept)


def test_sampling_is_decided_once_and_by_the_client_if_it_began_the_trace() -> None:
    none, half, all_ = (Sampler(ratio) for ratio in (0.0, 0.5, 1.0))
    low, high = "0" * 31 + "1", "0" * 16 + "f" * 16
    assert [each.samples(low, None) for each in (none, half, all_)] == [False, True, True]
    assert [each.samples(high, None) for each in (none, half, all_)] == [False, False, True]
    assert none.samples(high, SENT)
    assert not all_.samples(low, replace(SENT, sampled=False))
    assert not Sampler(0.0, parent_based=False).samples(low, SENT)


def test_spans_are_below_the_current_one_and_keep_the_state(ended: list[Span]) -> None:
    request = tracing.begin_trace("POST /x", SERVER, SENT, {"a": 1, "left out": None})
    token = tracing.current.set(request)
    with tracing.span("inner", CLIENT) as inner:
        assert tracing.context() is inner.context
    tracing.current.reset(token)
    request.end()
    request.end()
    assert [each.name for each in ended] == ["inner", "POST /x"]
    assert request.context is not None
    assert inner.context is not None
    assert (inner.parent_id, request.parent_id) == (request.context.span_id, PARENT)
    assert inner.context.trace_id == TRACE
    assert inner.context.headers["tracestate"] == "office=3"
    assert request.attributes == {"a": 1}
    assert 0 < inner.began <= inner.ended <= request.ended


def test_what_leaves_a_block_is_its_failure_by_class_only(ended: list[Span]) -> None:
    with pytest.raises(ValueError, match="a secret"), tracing.span("x", parent=SENT):
        raise ValueError("a secret")
    with pytest.raises(asyncio.CancelledError), tracing.span("y", parent=SENT):
        raise asyncio.CancelledError
    assert [each.error for each in ended] == ["ValueError", tracing.CANCELLED]
    assert "secret" not in str([each.attributes for each in ended])


def test_without_a_trace_or_with_tracing_off_there_is_nothing(ended: list[Span]) -> None:
    with tracing.span("no parent") as span:
        assert span is tracing.NOTHING
    tracing.install(None)
    with tracing.span("off", parent=SENT) as span:
        assert span is tracing.NOTHING
    assert tracing.begin_trace("off", SERVER, SENT, {}) is tracing.NOTHING
    assert ended == []


def test_in_a_trace_that_is_not_sampled_the_ids_are_passed_on_and_nothing_is_kept(ended: list[Span]) -> None:
    request = tracing.begin_trace("x", SERVER, replace(SENT, sampled=False), {"a": 1})
    token = tracing.current.set(request)
    with tracing.span("y") as span:
        span.set({"b": 2})
        own = tracing.context()
    tracing.current.reset(token)
    assert own is not None
    assert (own.trace_id, own.sampled) == (TRACE, False)
    assert ended == []
    assert request.attributes == span.attributes == {}


def test_attributes_and_links_have_limits(ended: list[Span]) -> None:
    with tracing.span("x" * 1000, parent=SENT) as span:
        span.set({f"a{number}": "y" * 100_000 for number in range(100)})
        for _ in range(100):
            span.link(SENT)
    assert len(span.name) == tracing.LONGEST_NAME
    assert (len(span.attributes), len(span.links)) == (tracing.MOST_ATTRIBUTES, tracing.MOST_LINKS)
    assert len(str(span.attributes["a0"])) == 16384


def test_content_is_kept_only_if_the_operator_wants_it(ended: list[Span]) -> None:
    with tracing.span("x", parent=SENT) as span:
        tracing.content(span, "said", lambda: pytest.fail("was built"))
    tracing.install(Tracing(ended.append, content=True))
    with tracing.span("y", parent=SENT) as span:
        tracing.content(span, "said", lambda: [{"a": "b"}])
    assert span.attributes == {"said": '[{"a":"b"}]'}


def test_code_that_uses_opentelemetry_sees_the_current_span(ended: list[Span]) -> None:
    with tracing.span("x", parent=SENT) as span, tracing.shared_with_libraries():
        seen = trace.get_current_span().get_span_context()
        assert span.context is not None
        assert (f"{seen.trace_id:032x}", f"{seen.span_id:016x}") == (TRACE, span.context.span_id)
        assert seen.trace_state.get("office") == "3"
    assert not trace.get_current_span().get_span_context().is_valid


def test_only_listed_providers_get_the_context(ended: list[Span]) -> None:
    span = tracing.begin("POST", CLIENT, parent=SENT)
    assert tracing.headers_for_provider("api.example.org", span) == {}
    tracing.install(Tracing(ended.append, providers=frozenset({"api.example.org"})))
    assert span.context is not None
    assert tracing.headers_for_provider("API.example.org", span) == span.context.headers
    assert tracing.headers_for_provider("api.example.org:8443", span) == {}


def test_sections_follow_each_other(ended: list[Span]) -> None:
    with tracing.span("run", parent=SENT) as run:
        with tracing.Sections() as sections:
            for number in (1, 2):
                sections.next("step", {"number": number})
        assert tracing.current.get() is run
    first, second, _ = ended
    assert run.context is not None
    assert (first.parent_id, second.parent_id) == (run.context.span_id, run.context.span_id)
    assert first.ended <= second.began
