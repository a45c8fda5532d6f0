"""The encoder of spans, compared with the protocol's own library."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenthost.tracing import otlp
from agents_app.tracing import CLIENT, Context, Span, Value
from tests.fakes.collector import spans_of

IDS = Context("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True, state="office=3")
VALUES = st.one_of(
    st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.lists(st.text(), max_size=3)
)


def span(**attributes: Value) -> Span:
    made = Span("chat", CLIENT, IDS, "b7ad6b7169203331", 1_700_000_000_000_000_001, recorded=True)
    made.ended = made.began + 5
    made.attributes = dict(attributes)
    return made


def test_a_span_is_what_it_was() -> None:
    made = span(a="ä", n=-1, f=1.5, yes=True, many=["x", "y"])
    made.links.append(Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True))
    made.error = "timeout"
    (seen,) = spans_of(otlp.request({"service.name": "agenthost"}, [made]))
    assert (seen.trace_id, seen.span_id, seen.parent_id, seen.state) == (IDS.trace_id, IDS.span_id, made.parent_id, IDS.state)
    assert (seen.name, seen.kind, seen.began, seen.ended, seen.failed) == ("chat", CLIENT, made.began, made.ended, True)
    assert seen.attributes == {"a": "ä", "n": -1, "f": 1.5, "yes": True, "many": ["x", "y"]}
    assert seen.resource == {"service.name": "agenthost"}
    assert seen.links == (("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),)


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES, max_size=5))
def test_every_value_survives(attributes: dict[str, Value]) -> None:
    made = span()
    made.attributes = attributes
    (seen,) = spans_of(otlp.request({}, [made]))
    assert seen.attributes == {name: list(each) if isinstance(each, list) else each for name, each in attributes.items()}


def test_text_that_is_no_unicode_is_sent_all_the_same() -> None:
    (seen,) = spans_of(otlp.request({}, [span(a="\ud800")]))
    assert seen.attributes == {"a": "?"}


def test_nothing_is_a_valid_request_too() -> None:
    request = ExportTraceServiceRequest()
    request.ParseFromString(otlp.request({}, ()))
    assert [len(scope.spans) for each in request.resource_spans for scope in each.scope_spans] == [0]
