"""Stream positions, as clients see them: opaque and in the order of the events (A120).

Pure. The event's number in hexadecimal with a fixed width, then a signature. So the server can distinguish a
position that was never issued from one whose events were deleted.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from functools import lru_cache

from sessions_app.core.base.errors import UnknownPosition

_NUMBER = 16
_SIGNATURE = 12


def signing_key(secret: str | bytes) -> bytes:
    """The key of the signatures, derived from the server's secret."""
    raw = secret.encode() if isinstance(secret, str) else secret
    return hashlib.blake2b(raw, person=b"aap position").digest()


def write(key: bytes, session: str, seq: int) -> str:
    return f"{seq:0{_NUMBER}x}{_signature(key, session, seq)}"


def read(keys: Sequence[bytes], session: str, position: str) -> int:
    """The event's number; UnknownPosition if the position was not issued for this session with one of the keys."""
    number = position[:_NUMBER]
    if len(position) != _NUMBER + _SIGNATURE or not set(position) <= set("0123456789abcdef"):
        raise UnknownPosition
    seq = int(number, 16)
    if not any(hmac.compare_digest(position[_NUMBER:], _signature(key, session, seq)) for key in keys):
        raise UnknownPosition
    return seq


def _signature(key: bytes, session: str, seq: int) -> str:
    signature = _keyed(key).copy()
    signature.update(f"{seq} {session}".encode())
    return signature.hexdigest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hashlib.blake2b:
    """The hash that has taken the key already, which is half of the work."""
    return hashlib.blake2b(key=key, digest_size=_SIGNATURE // 2)
