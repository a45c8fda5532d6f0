"""Sealing of secrets: AES-GCM under a key ring; the newest key seals, all of them open.

A sealed value names its key and is bound to its place: what was sealed for one session's option opens
nowhere else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

from agents_app import exact_json

MASK = "***"
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12


class CannotUnseal(Exception):
    """No key of the ring opens this value: it was removed too early, or the value was tampered with."""


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"agenthost key id\0" + key).digest()[:_KEY_ID_BYTES]


def _bound_to(place: Sequence[str | int], key_id: bytes) -> bytes:
    return exact_json.dumps([*place, key_id.hex()]).encode()


def newest_key_id() -> bytes:
    return _key_id(settings.AGENTHOST_KEY_RING[0])


def key_ids() -> list[str]:
    """The ids of the ring's keys, newest first. An id reveals nothing of its key."""
    return [_key_id(key).hex() for key in settings.AGENTHOST_KEY_RING]


def key_id_of(sealed: bytes) -> bytes:
    return bytes(sealed[:_KEY_ID_BYTES])


def seal(text: str, place: Sequence[str | int]) -> bytes:
    """``place`` says where the value belongs (tenant, session, option); ``unseal`` wants the same."""
    key = settings.AGENTHOST_KEY_RING[0]
    key_id, nonce = _key_id(key), os.urandom(_NONCE_BYTES)
    return key_id + nonce + AESGCM(key).encrypt(nonce, text.encode(), _bound_to(place, key_id))


def unseal(sealed: bytes, place: Sequence[str | int]) -> str:
    sealed = bytes(sealed)
    key_id, nonce, body = (
        sealed[:_KEY_ID_BYTES],
        sealed[_KEY_ID_BYTES : _KEY_ID_BYTES + _NONCE_BYTES],
        sealed[_KEY_ID_BYTES + _NONCE_BYTES :],
    )
    for key in settings.AGENTHOST_KEY_RING:
        if _key_id(key) == key_id:
            try:
                return AESGCM(key).decrypt(nonce, body, _bound_to(place, key_id)).decode()
            except InvalidTag as error:
                raise CannotUnseal("a sealed value does not open in this place") from error
    raise CannotUnseal("the key that sealed a value is not in the key ring")


def opens(sealed: bytes, place: Sequence[str | int]) -> bool:
    """Whether the key ring opens this value."""
    try:
        unseal(sealed, place)
    except CannotUnseal:
        return False
    return True


def fingerprint(text: str) -> str:
    """A keyed digest: tells whether two secrets are equal, and nothing else of them."""
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), key=settings.SECRET_KEY.encode()[:64], digest_size=32
    ).hexdigest()
