"""Spans of distributed traces: their ids, their place in a trace, and what they report; ``agenthost.tracing`` exports them.

Names and attributes are those of OpenTelemetry's conventions where they have one. Without ``install`` no span is made. In a trace
that is not sampled none is recorded, but its ids are still in logs and passed on. Attributes have ids, numbers and names, never
keys or errors' messages; what users and models write only where ``content`` is used.
"""

from __future__ import annotations

import functools
import random
import re
import time
from asyncio import CancelledError
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from agents_app import exact_json

P = ParamSpec("P")
T = TypeVar("T")

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of spans, by their numbers in OpenTelemetry's protocol."""
CANCELLED = "cancelled"
MOST_ATTRIBUTES, MOST_LINKS = 64, 32
LONGEST_NAME = 200

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE_MEMBER = re.compile(
    r"(?:[a-z0-9][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_LONGEST_STATE, _MOST_STATES = 512, 32


@dataclass(frozen=True, slots=True)
class Context:
    """The place of a span in its trace, as it is passed on (W3C Trace Context). ``state``: the header tracestate."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @property
    def headers(self) -> dict[str, str]:
        made = {"traceparent": self.traceparent}
        if self.state:
            made["tracestate"] = self.state
        return made


def parse(traceparent: str, tracestate: str = "") -> Context | None:
    """The context in the headers of a request; None if ``traceparent`` is malformed. A malformed ``tracestate`` is dropped."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return Context(trace_id, span_id, bool(int(flags, 16) & 1), _state(tracestate))


def _state(sent: str) -> str:
    if len(sent) > _LONGEST_STATE:
        return ""
    members = [member for each in sent.split(",") if (member := each.strip(" \t"))]
    if len(members) > _MOST_STATES or not all(map(_STATE_MEMBER.fullmatch, members)):
        return ""
    names = [member.partition("=")[0] for member in members]
    return ",".join(members) if len(set(names)) == len(names) else ""


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which traces are recorded: this share of them. ``parent_based``: a trace that a client began is as the client says."""

    ratio: float = 1.0
    parent_based: bool = True

    def samples(self, trace_id: str, parent: Context | None) -> bool:
        if self.parent_based and parent is not None:
            return parent.sampled
        # As OpenTelemetry's own sampler, so that services with the same ratio record the same traces.
        return int(trace_id[16:], 16) < round(self.ratio * 2**64)


@dataclass(frozen=True, slots=True)
class Tracing:
    """How this process traces. ``record`` takes each span when it ends, and neither waits nor raises."""

    record: Callable[[Span], object]
    sampler: Sampler = Sampler()
    content: bool = False
    """Whether spans have what users, models and tools write."""
    providers: Collection[str] = ()
    """Hosts of model providers that are sent the context."""
    longest: int = 16384
    """Limit of characters of an attribute."""


_tracing: Tracing | None = None


def install(tracing: Tracing | None) -> None:
    """Trace from now on in this process. None: no more."""
    global _tracing
    _tracing = tracing


def is_on() -> bool:
    return _tracing is not None


class Span:
    """One piece of work in a trace. ``recorded`` False: nothing of it is kept; it only has a context, if there is one."""

    __slots__ = ("attributes", "began", "context", "ended", "error", "kind", "links", "name", "parent_id", "recorded")

    def __init__(
        self, name: str, kind: int, context: Context | None, parent_id: str = "", began: int = 0, *, recorded: bool = False
    ) -> None:
        self.name, self.kind, self.context, self.parent_id = name[:LONGEST_NAME], kind, context, parent_id
        self.recorded = recorded
        self.began, self.ended = began, 0
        self.attributes: dict[str, Value] = {}
        self.links: list[Context] = []
        self.error: str | None = None
        """The class of its failure; None: it has not failed."""

    def set(self, attributes: Attributes) -> None:
        """Set attributes; those that are None are left out."""
        if self.recorded:
            for name, value in attributes.items():
                if value is not None and len(self.attributes) < MOST_ATTRIBUTES:
                    self.attributes[name] = _cut(value)

    def link(self, context: Context | None) -> None:
        """Refer to a span, usually of another trace."""
        if self.recorded and context is not None and len(self.links) < MOST_LINKS:
            self.links.append(context)

    def fail(self, kind: str) -> None:
        if self.recorded:
            self.error = kind
            self.attributes["error.type"] = kind

    def end(self, at: int | None = None) -> None:
        """End it, once; later calls change nothing."""
        if self.recorded and not self.ended:
            self.ended = max(self.began, now() if at is None else at)
            if _tracing is not None:
                _tracing.record(self)


NOTHING = Span("", INTERNAL, None)
current: ContextVar[Span | None] = ContextVar("agenthost_span", default=None)
"""The span of the work in progress. New spans are its children."""


def now() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()


def new_span_id() -> str:
    # Not secret. ``random`` begins anew in a forked process.
    return f"{random.getrandbits(64) or 1:016x}"


def context() -> Context | None:
    """The context of the work in progress."""
    span = current.get()
    return None if span is None else span.context


def begin(
    name: str,
    kind: int = INTERNAL,
    attributes: Attributes | None = None,
    *,
    parent: Context | None = None,
    began: int | None = None,
    span_id: str = "",
) -> Span:
    """Begin a span of ``parent``, by default of the current one; the caller ends it. Without a parent there is no trace."""
    if _tracing is None or (above := parent or context()) is None:
        return NOTHING
    if not above.sampled:
        return Span(name, kind, above)
    own = Context(above.trace_id, span_id or new_span_id(), sampled=True, state=above.state)
    span = Span(name, kind, own, above.span_id, now() if began is None else began, recorded=True)
    if attributes:
        span.set(attributes)
    return span


def begin_trace(name: str, kind: int, parent: Context | None, attributes: Attributes) -> Span:
    """Begin the first span of this server in a trace, whose ``parent`` is a client's, if it sent one. Decides the sampling."""
    if _tracing is None:
        return NOTHING
    trace_id = f"{random.getrandbits(128) or 1:032x}" if parent is None else parent.trace_id
    sampled = _tracing.sampler.samples(trace_id, parent)
    own = Context(trace_id, new_span_id(), sampled, "" if parent is None else parent.state)
    span = Span(name, kind, own, "" if parent is None else parent.span_id, now(), recorded=sampled)
    span.set(attributes)
    return span


class span:  # noqa: N801 - used as a function: a class takes less time than a generator
    """A span for a block, current within it. An exception that leaves the block is its failure."""

    __slots__ = ("_arguments", "_span", "_token")

    def __init__(
        self, name: str, kind: int = INTERNAL, attributes: Attributes | None = None, *, parent: Context | None = None
    ) -> None:
        self._arguments = (name, kind, attributes, parent)

    def __enter__(self) -> Span:
        name, kind, attributes, parent = self._arguments
        self._span = NOTHING if _tracing is None else begin(name, kind, attributes, parent=parent)
        self._token = None if self._span is NOTHING else current.set(self._span)
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _frames: TracebackType | None) -> None:
        if self._token is not None:
            current.reset(self._token)
        if kind is not None and self._span.error is None:
            self._span.fail(CANCELLED if issubclass(kind, CancelledError) else kind.__name__)
        self._span.end()


def traced(name: str, kind: int = INTERNAL) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: a span for each call of a function that is no coroutine."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if _tracing is None:
                return function(*args, **kwargs)
            with span(name, kind):
                return function(*args, **kwargs)

        return call

    return decorate


class Sections:
    """Spans that follow each other, of which one is current at a time. Used as a context manager, in one task."""

    __slots__ = ("_above", "_span")

    def __enter__(self) -> Sections:
        self._above, self._span = current.get(), NOTHING
        return self

    def next(self, name: str, attributes: Attributes) -> None:
        """End the last one and begin this one."""
        if _tracing is None or self._above is None:
            return
        self._span.end()
        self._span = begin(name, INTERNAL, attributes, parent=self._above.context)
        current.set(self._span)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _frames: TracebackType | None) -> None:
        if self._span is NOTHING:
            return
        if kind is not None:
            self._span.fail(CANCELLED if issubclass(kind, CancelledError) else kind.__name__)
        self._span.end()
        current.set(self._above)


def content(span: Span, name: str, make: Callable[[], Any]) -> None:
    """Set an attribute to what ``make`` returns, as JSON, if the operator wants content in spans."""
    if span.recorded and _tracing is not None and _tracing.content:
        value = make()
        span.set({name: value if isinstance(value, str) else exact_json.dumps(value)})


def headers_for_provider(host: str, span: Span) -> dict[str, str]:
    """The context, for a provider that the operator allows to get it."""
    if _tracing is None or span.context is None or host.lower() not in _tracing.providers:
        return {}
    return span.context.headers


@contextmanager
def shared_with_libraries() -> Iterator[None]:
    """Let code that uses OpenTelemetry's own interface see the current context within the block."""
    own = context()
    if own is None:
        yield
        return
    from opentelemetry import context as contexts
    from opentelemetry import trace

    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if own.sampled else trace.TraceFlags.DEFAULT)
    state = trace.TraceState.from_header([own.state]) if own.state else None
    shared = trace.SpanContext(int(own.trace_id, 16), int(own.span_id, 16), is_remote=False, trace_flags=flags, trace_state=state)
    token = contexts.attach(trace.set_span_in_context(trace.NonRecordingSpan(shared)))
    try:
        yield
    finally:
        contexts.detach(token)


def _cut(value: Value) -> Value:
    most = 16384 if _tracing is None else _tracing.longest
    return value[:most] if isinstance(value, str) and len(value) > most else value
