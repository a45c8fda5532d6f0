"""Positions in a session's stream, as clients see them: opaque, in the order of the events (A120).

Pure. The event's number in hexadecimal, always as wide, then a mark that only this server can make:
so a position that a session never gave is told from one whose events are gone.
"""

from __future__ import annotations

import hashlib
import hmac

from sessions_app.core.base.errors import UnknownPosition

_NUMBER = 16
_MARK = 12


def signing_key(secret: str | bytes) -> bytes:
    """The key for marks, from the server's secret."""
    raw = secret.encode() if isinstance(secret, str) else secret
    return hashlib.blake2b(raw, person=b"aap position").digest()


def write(key: bytes, session: str, seq: int) -> str:
    return f"{seq:0{_NUMBER}x}{_mark(key, session, seq)}"


def read(key: bytes, session: str, position: str) -> int:
    """The event's number; UnknownPosition if this session never gave this position."""
    number = position[:_NUMBER]
    if len(position) != _NUMBER + _MARK or not set(position) <= set("0123456789abcdef"):
        raise UnknownPosition
    seq = int(number, 16)
    if not hmac.compare_digest(position[_NUMBER:], _mark(key, session, seq)):
        raise UnknownPosition
    return seq


def _mark(key: bytes, session: str, seq: int) -> str:
    return hashlib.blake2b(f"{seq} {session}".encode(), key=key, digest_size=_MARK // 2).hexdigest()
