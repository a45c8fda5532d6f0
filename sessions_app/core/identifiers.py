"""Public ids: random, prefixed, safe in a URL path."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits


def new_id(prefix: str) -> str:
    """``prefix`` and 24 random letters: 142 bits, not to be guessed."""
    return prefix + "_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))
