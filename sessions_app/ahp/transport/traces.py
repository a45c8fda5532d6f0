"""Spans of AHP clients' requests and notifications, by OpenTelemetry's conventions for JSON-RPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agents_app import tracing
from agents_app.tracing import SERVER, Context
from sessions_app.ahp.transport import jsonrpc

if TYPE_CHECKING:
    from sessions_app.ahp.version import Version

_MOST_ID = 100


@contextmanager
def answering(message: jsonrpc.Message, version: Version, upgrade: Context | None) -> Iterator[None]:
    """The span of one message, current within the block. ``upgrade``: what the client sent when it connected."""
    if not isinstance(message, jsonrpc.Request | jsonrpc.Notification) or message.method == "ping":
        yield
        return
    is_request = isinstance(message, jsonrpc.Request)
    known = version.commands if is_request else version.client_notifications
    # Names of spans must not be made up by clients.
    method = message.method if message.method in known else "unknown"
    about: tracing.Attributes = {
        "rpc.system.name": "jsonrpc",
        "rpc.method": method,
        "jsonrpc.request.id": str(message.id)[:_MOST_ID] if isinstance(message, jsonrpc.Request) else None,
        "network.protocol.name": "websocket",
    }
    span = tracing.begin_trace(f"AHP {method}", SERVER, upgrade, about)
    token = tracing.current.set(span)
    try:
        yield
    finally:
        tracing.current.reset(token)
        span.end()


def failed(code: int) -> None:
    """The current message is answered with this error."""
    if (span := tracing.current.get()) is not None:
        span.set({"rpc.response.status_code": str(code)})
        span.fail(str(code))
