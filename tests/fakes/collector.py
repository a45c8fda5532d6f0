"""A collector of traces on a real socket, which parses OpenTelemetry's protocol with its own library."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60.0


@dataclass(frozen=True)
class Seen:
    """A span as the collector has received it. ``links``: pairs of trace id and span id."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    began: int
    ended: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    failed: bool


@dataclass
class Collector:
    """``status``: what it answers. ``bodies`` and ``headers`` have what was sent, as it was sent."""

    port: int = 0
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Seen] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        with self._changed:
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if self.status != 200 or path != "/v1/traces" or headers.get("Content-Type") != "application/x-protobuf":
                self._changed.notify_all()
                return self.status if self.status != 200 else 400
            if headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.bodies.append(body)
            self.spans += spans_of(body)
            self._changed.notify_all()
            return 200

    def until(self, holds: Callable[[list[Seen]], bool]) -> list[Seen]:
        """Wait until this holds of all spans so far; returns them."""
        with self._changed:
            if not self._changed.wait_for(lambda: holds(self.spans), PATIENCE):
                raise AssertionError(f"the collector has only {[(each.name, each.trace_id) for each in self.spans]}")
            return list(self.spans)

    def trace(self, trace_id: str, *names: str) -> list[Seen]:
        """The spans of a trace, in the order of their begin, when it has one of each of these names (so often as it is named)."""

        def complete(spans: list[Seen]) -> bool:
            found = [each.name for each in spans if each.trace_id == trace_id]
            return all(found.count(name) >= names.count(name) for name in names)

        return sorted((each for each in self.until(complete) if each.trace_id == trace_id), key=lambda each: each.began)

    def trace_of(self, turn: str, *names: str) -> list[Seen]:
        """The trace of the turn with this id."""

        def root(spans: list[Seen]) -> list[Seen]:
            return [each for each in spans if each.attributes.get("agenthost.turn.id") == turn]

        found = root(self.until(lambda spans: bool(root(spans))))
        return self.trace(found[0].trace_id, *names)


def spans_of(body: bytes) -> list[Seen]:
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        Seen(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.trace_state,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(span.attributes),
            _values(of_resource.resource.attributes),
            tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            span.status.code == 2,
        )
        for of_resource in request.resource_spans
        for scope in of_resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def tree(spans: list[Seen]) -> str:
    """The names of a trace's spans, each indented below its parent."""
    ids = {each.span_id for each in spans}

    def lines(parent: str, depth: int) -> Iterator[str]:
        for each in spans:
            if each.parent_id == parent or (depth == 0 and each.parent_id not in ids):
                yield "  " * depth + each.name
                yield from lines(each.span_id, depth + 1)

    return "\n".join(lines("-", 0))


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    collector = Collector()

    open_connections: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            open_connections.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(collector.take(self.path, dict(self.headers), body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        # Their threads would go on answering.
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
        thread.join()


def settled(collector: Collector, seconds: float = 1.0) -> list[Seen]:
    """All spans, when none has come for a while: for tests that none comes."""
    while True:
        before = len(collector.spans)
        time.sleep(seconds)
        if len(collector.spans) == before:
            return list(collector.spans)
