"""Public ids: random, prefixed, safe in a URL path."""

from __future__ import annotations

import secrets
import string

_ALPHABET = (string.ascii_letters + string.digits).encode()
_LENGTH = 24
_LETTERS = (_ALPHABET * 5)[:256]
"""The letter of each byte."""
_UNFAIR = bytes(range(256 // len(_ALPHABET) * len(_ALPHABET), 256))
"""Bytes that would make the first letters more likely than others."""


def new_id(prefix: str) -> str:
    """``prefix`` and 24 random letters and digits: 142 bits, which cannot be guessed."""
    letters = b""
    while len(letters) < _LENGTH:
        letters += secrets.token_bytes(_LENGTH + 8).translate(_LETTERS, _UNFAIR)
    return f"{prefix}_{letters[:_LENGTH].decode()}"
