"""The secret key and the keys that are accepted beside it while it is rotated.

The first one signs, all of them verify. So processes that already have the new key and processes that still sign with the
old one accept each other's cursors, positions and sessions.
"""

from __future__ import annotations

from django.conf import settings


def newest() -> str:
    key: str = settings.SECRET_KEY
    return key


def older() -> list[str]:
    """The keys that only verify."""
    return list(settings.SECRET_KEY_FALLBACKS)


def accepted() -> list[str]:
    """All keys, the one that signs first."""
    return [newest(), *older()]
