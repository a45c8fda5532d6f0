"""Encryption of stored secrets: AES-GCM with a key ring. The newest key encrypts, every key of the ring decrypts.

A sealed value contains the id of its key and is bound to its place: a value sealed for one session's option cannot be
decrypted as another's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import connection
from django.db.models import Model, QuerySet

from agents_app import exact_json

M = TypeVar("M", bound=Model)

MASK = "***"
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12


class CannotUnseal(Exception):
    """No key of the ring decrypts this value: its key was removed too early, or the value was changed."""


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"agenthost key id\0" + key).digest()[:_KEY_ID_BYTES]


def _bound_to(place: Sequence[str | int], key_id: bytes) -> bytes:
    return exact_json.dumps([*place, key_id.hex()]).encode()


def newest_key_id() -> bytes:
    return _key_id(settings.AGENTHOST_KEY_RING[0])


def key_ids() -> list[str]:
    """The ids of the ring's keys, newest first. An id reveals nothing about its key."""
    return [_key_id(key).hex() for key in settings.AGENTHOST_KEY_RING]


def key_id_of(sealed: bytes) -> bytes:
    return bytes(sealed[:_KEY_ID_BYTES])


def seal(text: str, place: Sequence[str | int]) -> bytes:
    """Encrypt ``text``. ``place`` names the owner of the value (tenant, session, option); ``unseal`` needs the same place."""
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
                raise CannotUnseal("a sealed value belongs to another place or was changed") from error
    raise CannotUnseal("a sealed value's key is not in AGENTHOST_KEY_RING")


def opens(sealed: bytes, place: Sequence[str | int]) -> bool:
    """Whether the key ring decrypts this value."""
    try:
        unseal(sealed, place)
    except CannotUnseal:
        return False
    return True


def fingerprint(text: str, key: str | None = None) -> str:
    """A keyed digest: shows whether two secrets are equal, and nothing else. ``key``: the secret key by default."""
    keyed = (settings.SECRET_KEY if key is None else key).encode()[:64]
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=keyed, digest_size=32).hexdigest()


# --- rows with a column ``sealed`` -----------------------------------------------------------------


_PAGE = 500


def reseal(model: type[M], place_of: Callable[[M], Sequence[str | int]]) -> Iterator[tuple[int, int]]:
    """Encrypt the values of a table with the newest key, in pages: yields how many changed, and how many cannot be decrypted.

    It can be interrupted and repeated: values that are sealed with the newest key already stay as they are.
    """
    last = 0
    while rows := list(model._base_manager.filter(sealed__isnull=False, pk__gt=last).order_by("pk")[:_PAGE]):
        last = rows[-1].pk
        yield _reseal(rows, place_of)


def _reseal(rows: Iterable[M], place_of: Callable[[M], Sequence[str | int]]) -> tuple[int, int]:
    newest, done, lost = newest_key_id(), 0, 0
    for row in rows:
        old = _sealed(row)
        if key_id_of(old) == newest:
            continue
        try:
            text = unseal(old, place_of(row))
        except CannotUnseal:
            lost += 1
            continue
        # Only if the value was not changed meanwhile.
        unchanged = type(row)._base_manager.filter(pk=row.pk, sealed=old)
        done += unchanged.update(sealed=seal(text, place_of(row)))
    return done, lost


def counts(model: type[Model]) -> dict[str, int]:
    """How many values of a table are sealed with each key, by the key's id."""
    begin = f"substr(sealed, 1, {_KEY_ID_BYTES})"
    as_hex = f"encode({begin}, 'hex')" if connection.vendor == "postgresql" else f"lower(hex({begin}))"
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"select {as_hex}, count(*) from {table} where sealed is not null group by 1 order by 1")
        return dict(cursor.fetchall())


def newest_opens(rows: QuerySet[M], place_of: Callable[[M], Sequence[str | int]]) -> bool:
    """Whether the key ring decrypts the newest row's value; True if no row has one."""
    row = rows.filter(sealed__isnull=False).order_by("-pk").first()
    return row is None or opens(_sealed(row), place_of(row))


def _sealed(row: Model) -> bytes:
    return bytes(getattr(row, "sealed"))  # noqa: B009 - models have it, the type does not say so
