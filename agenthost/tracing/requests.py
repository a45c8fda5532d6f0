"""The spans of HTTP requests: the first ones of this server in a trace."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

from agents_app import tracing
from agents_app.tracing import SERVER, Context, Span

_HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
_SESSION = re.compile(r"(/aap/v[0-9]+/sessions)/[^/]+(/[a-z]+)?.*")
_KNOWN = re.compile(r"/aap/v[0-9]+(?:/[a-z]+)?")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def begin(scope: MutableMapping[str, Any], request_id: str) -> Span | None:
    """Begin the span of a request, and make it current in this task."""
    if not tracing.is_on() or scope["path"] in _HEALTH_PATHS:
        return None
    route, method = route_of(scope["path"]), scope["method"] if scope["method"] in _METHODS else "_OTHER"
    about = {
        "http.request.method": method,
        "http.route": route,
        # Other paths may have a token of a link that was sent by mail.
        "url.path": scope["path"] if route.startswith("/aap/") else None,
        "url.scheme": scope.get("scheme", "http"),
        "agenthost.request.id": request_id,
    }
    span = tracing.begin_trace(f"{'HTTP' if method == '_OTHER' else method} {route}", SERVER, sent_by(scope), about)
    tracing.current.set(span)
    return span


def end(span: Span | None, status: int) -> None:
    """``status`` 0: the client left before the response began."""
    if span is None:
        return
    span.set({"http.response.status_code": status or None})
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or not status:
        span.fail(str(status) if status else tracing.CANCELLED)
    span.end()


def sent_by(scope: MutableMapping[str, Any]) -> Context | None:
    """The context that the client sent; None if it sent none, several, or a malformed one."""
    parents = [value for name, value in scope["headers"] if name == b"traceparent"]
    if len(parents) != 1:
        return None
    states = b",".join(value for name, value in scope["headers"] if name == b"tracestate")
    return tracing.parse(parents[0].decode("latin-1"), states.decode("latin-1"))


def route_of(path: str) -> str:
    """The path without ids: of other faces than AAP its first part only."""
    if found := _SESSION.fullmatch(path):
        return f"{found[1]}/{{session_id}}{found[2] or ''}"
    if _KNOWN.fullmatch(path):
        return path
    first = path.split("/", 2)[1] if path.startswith("/") else ""
    return f"/{first}" if first in ("aap", "ahp", "api", "admin", "console", "accounts", "static", "docs") else "/other"
