"""CORS headers (A95).

API keys are sent in a header, never in a cookie, so pages of any allowed origin may read responses without
credentials mode. The admin, the console and the pages of accounts use cookies, so they are readable by no other origin.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

Headers = list[tuple[bytes, bytes]]

ALLOW_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"
_MANAGEMENT, _MANAGEMENT_METHODS = "/api/", b"GET, POST, PATCH, DELETE, OPTIONS"
ALLOW_HEADERS = b"Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Turn-Deadline"
EXPOSE_HEADERS = b"Retry-After, Location, X-Request-Id, X-Turn-Id, RateLimit, RateLimit-Policy"
PREFLIGHT_SECONDS = b"7200"
_OWN_PAGES = ("/admin", "/console", "/accounts")


def response_headers(path: str, origin: str | None) -> Headers:
    """Headers of every response, including errors and streams."""
    if _is_own_page(path):
        return []
    allowed: Sequence[str] = settings.AGENTHOST_CORS_ORIGINS
    if "*" in allowed:
        return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSE_HEADERS)]
    headers: Headers = [(b"vary", b"Origin")]
    if _is_listed(origin, allowed):
        assert origin is not None
        headers += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSE_HEADERS),
        ]
    return headers


def preflight_headers(path: str, origin: str | None) -> Headers:
    """Additional headers of the response to OPTIONS; empty for an origin that is not allowed."""
    allowed: Sequence[str] = settings.AGENTHOST_CORS_ORIGINS
    if _is_own_page(path) or not ("*" in allowed or _is_listed(origin, allowed)):
        return []
    return [
        (b"access-control-allow-methods", _MANAGEMENT_METHODS if path.startswith(_MANAGEMENT) else ALLOW_METHODS),
        (b"access-control-allow-headers", ALLOW_HEADERS),
        (b"access-control-max-age", PREFLIGHT_SECONDS),
    ]


def _is_listed(origin: str | None, allowed: Sequence[str]) -> bool:
    return origin is not None and origin.lower() in allowed


def _is_own_page(path: str) -> bool:
    return any(path == page or path.startswith(f"{page}/") for page in _OWN_PAGES)
