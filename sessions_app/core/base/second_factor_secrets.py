"""Secrets of second factors (TOTP keys, seeds of recovery codes), sealed with the key ring.

They are text in JSON columns of django-allauth, so a sealed one is base64 with a prefix.
"""

from __future__ import annotations

import base64

from sessions_app.core.base import sealing

_PREFIX = "sealed:"
_PLACE = ("second factor",)


def seal(text: str) -> str:
    return _PREFIX + base64.b64encode(sealing.seal(text, _PLACE)).decode()


def unseal(text: str) -> str:
    return sealing.unseal(_bytes(text), _PLACE)


def key_id_of(text: str) -> str | None:
    """The id of the key that sealed this value; None if it is not a sealed value."""
    return sealing.key_id_of(_bytes(text)).hex() if text.startswith(_PREFIX) else None


def is_outdated(text: str) -> bool:
    """Whether this is a sealed value, and not sealed with the newest key."""
    return text.startswith(_PREFIX) and sealing.key_id_of(_bytes(text)) != sealing.newest_key_id()


def _bytes(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        raise sealing.CannotUnseal("a second factor's secret is not sealed")
    return base64.b64decode(text.removeprefix(_PREFIX))
