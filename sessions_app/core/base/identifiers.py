"""Public ids: random, prefixed, safe in a URL path."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 24


def new_id(prefix: str) -> str:
    """``prefix`` and 24 random letters: 142 bits, not to be guessed."""
    # One random number instead of one a letter: a fifth of the time, and there are several ids a turn.
    number = secrets.randbelow(len(_ALPHABET) ** _LENGTH)
    letters = []
    for _ in range(_LENGTH):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return f"{prefix}_{''.join(letters)}"
