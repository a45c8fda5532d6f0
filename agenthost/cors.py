"""Which pages of other origins may read an answer (A95).

Pure but for the operator's setting. Keys travel in a header that a page must be given first, never in a cookie:
so an answer may be read by whoever holds a key, and credentials mode stays off. Where a cookie does open doors,
in the admin, no other origin is let in.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

Headers = list[tuple[bytes, bytes]]

ALLOW_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"
ALLOW_HEADERS = b"Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID, X-Request-Id, X-Turn-Deadline"
EXPOSE_HEADERS = b"Retry-After, Location, X-Request-Id, X-Turn-Id, RateLimit, RateLimit-Policy"
PREFLIGHT_SECONDS = b"7200"
_OWN_PAGES = ("/admin", "/admin/")


def of_answer(path: str, origin: str | None) -> Headers:
    """What any answer carries, errors and streams included."""
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


def of_preflight(path: str, origin: str | None) -> Headers:
    """What the answer to OPTIONS carries besides; nothing for an origin that is not let in."""
    allowed: Sequence[str] = settings.AGENTHOST_CORS_ORIGINS
    if _is_own_page(path) or not ("*" in allowed or _is_listed(origin, allowed)):
        return []
    return [
        (b"access-control-allow-methods", ALLOW_METHODS),
        (b"access-control-allow-headers", ALLOW_HEADERS),
        (b"access-control-max-age", PREFLIGHT_SECONDS),
    ]


def _is_listed(origin: str | None, allowed: Sequence[str]) -> bool:
    return origin is not None and origin.lower() in allowed


def _is_own_page(path: str) -> bool:
    return path == _OWN_PAGES[0] or path.startswith(_OWN_PAGES[1])
