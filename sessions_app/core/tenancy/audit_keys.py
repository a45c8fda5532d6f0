"""Keyed hashes of the audit. The key is random, stored sealed with the key ring, and cached in each process."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence

from django.conf import settings
from django.db import transaction

from agents_app import exact_json
from sessions_app.core.base import sealing
from sessions_app.models import AuditKey

_PLACE = ("audit key",)
_known: dict[tuple[str, int], bytes] = {}


def mac(purpose: str, values: Sequence[str | int | None]) -> str:
    """The keyed hash of these values with the newest key, behind its number. ``purpose`` separates kinds of hashes."""
    number, key = _newest()
    return f"{number}:{_digest(key, purpose, values)}"


def holds(stored: str, purpose: str, values: Sequence[str | int | None]) -> bool | None:
    """Whether this is the keyed hash of these values; None if its key cannot be read with this key ring."""
    number, _, _digits = stored.partition(":")
    if not number.isdecimal() or len(number) > 9:
        return False
    try:
        key = _key(int(number))
    except AuditKey.DoesNotExist:
        return False
    except sealing.CannotUnseal:
        return None
    return hmac.compare_digest(stored, f"{int(number)}:{_digest(key, purpose, values)}")


def forget_known() -> None:
    """Clear the cache: for tests, and after the key ring has changed."""
    _known.clear()


def reseal() -> Iterator[tuple[int, int]]:
    """As ``sealing.reseal``."""
    return sealing.reseal(AuditKey, lambda _: _PLACE)


def _digest(key: bytes, purpose: str, values: Sequence[str | int | None]) -> str:
    return hmac.digest(key, exact_json.dumps([purpose, *values]).encode("utf-8", "surrogatepass"), hashlib.sha256).hex()


def _newest() -> tuple[int, bytes]:
    for (database, number), key in _known.items():
        if database == _database() and number == max(n for d, n in _known if d == database):
            return number, key
    for row in AuditKey.objects.order_by("-pk")[:5]:
        try:
            return row.pk, _key(row.pk)
        except sealing.CannotUnseal:
            # Its ring was lost (accept_keys); records from now on have a new key.
            continue
    with transaction.atomic():
        row = AuditKey.objects.create(sealed=sealing.seal(secrets.token_hex(32), _PLACE))
    return row.pk, _key(row.pk)


def _key(number: int) -> bytes:
    known = (_database(), number)
    if known not in _known:
        _known[known] = bytes.fromhex(sealing.unseal(bytes(AuditKey.objects.get(pk=number).sealed), _PLACE))
    return _known[known]


def _database() -> str:
    return str(settings.DATABASES["default"]["NAME"])
