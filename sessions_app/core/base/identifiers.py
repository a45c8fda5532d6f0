"""Public ids: random, prefixed, safe in a URL path."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 24


def new_id(prefix: str) -> str:
    """``prefix`` and 24 random letters and digits: 142 bits, which cannot be guessed."""
    # One random number instead of one per letter takes a fifth of the time; a turn needs several ids.
    number = secrets.randbelow(len(_ALPHABET) ** _LENGTH)
    letters = []
    for _ in range(_LENGTH):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return f"{prefix}_{''.join(letters)}"
