"""The request object of protocol requests, compared with Django's for the same request."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest

from agenthost.protocol_request import ProtocolRequest

HEADERS = [
    (b"host", b"agents.example:8000"),
    (b"content-type", b"application/json; charset=latin-1"),
    (b"content-length", b"2"),
    (b"x-turn-deadline", b"30"),
    (b"x-name", "é".encode("latin-1")),
    (b"accept", b"text/html"),
    (b"accept", b"application/json"),
    (b"x_under_score", b"spoofed"),
]


def scope(headers: list[tuple[bytes, bytes]], **other: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": "/aap/v3/sessions",
        "query_string": b"after=1&x=%C3%A9",
        "client": ("192.0.2.1", 5),
        "server": ("192.0.2.2", 80),
        "headers": headers,
        "agenthost": {"request_id": "req_1"},
        **other,
    }


@pytest.mark.parametrize(
    "name", ["Host", "content-TYPE", "Content-Length", "X-Turn-Deadline", "X-Name", "Accept", "X_Under_Score", "Missing", "Né"]
)
def test_a_header_is_what_django_would_give(name: str) -> None:
    ours, djangos = ProtocolRequest(scope(HEADERS), io.BytesIO()).headers, ASGIRequest(scope(HEADERS), io.BytesIO()).headers
    assert ours.get(name, "none") == djangos.get(name, "none")
    assert (name in ours) == (name in djangos)


def test_the_headers_are_those_of_django() -> None:
    ours, djangos = ProtocolRequest(scope(HEADERS), io.BytesIO()).headers, ASGIRequest(scope(HEADERS), io.BytesIO()).headers
    assert dict(ours) == dict(djangos)
    assert len(ours) == len(djangos)
    with pytest.raises(KeyError):
        ours["Missing"]


@pytest.mark.parametrize("root", ["", "/below"])
def test_everything_else_is_that_of_django_too(root: str) -> None:
    given = scope(HEADERS, root_path=root, path=f"{root}/aap/v3/sessions")
    ours, djangos = ProtocolRequest(given, io.BytesIO(b"{}")), ASGIRequest(given, io.BytesIO(b"{}"))
    for name in ("method", "path", "path_info", "script_name", "GET", "content_type", "content_params", "scheme", "COOKIES"):
        assert getattr(ours, name) == getattr(djangos, name)
    assert ours.META == {**djangos.META, "agenthost.request_id": "req_1"}
    assert ours.read() == b"{}"
