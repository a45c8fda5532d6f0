"""Counts and times the requests of both protocols and of the pages."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from agents_app.metrics import SECONDS

_REQUESTS = Counter("agenthost_http_requests_total", "HTTP requests that were answered, by face and status.", ["face", "status"])
_SECONDS = Histogram(
    "agenthost_http_response_seconds",
    "Time from an HTTP request to the head of its response, by face. A stream's later events do not count.",
    ["face"],
    buckets=SECONDS,
)
_FACES = frozenset({"aap", "ahp", "api", "admin", "console", "static"})
_NONE = "other"


def answered(path: str, status: int, seconds: float) -> None:
    """``status`` 0: the client left before the response began."""
    first = path.split("/", 2)[1] if path.startswith("/") else ""
    face = first if first in _FACES else _NONE
    _REQUESTS.labels(face, str(status) if status else "none").inc()
    if status:
        _SECONDS.labels(face).observe(seconds)
