"""Size limits of a model's message and of a turn, enforced while they grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["message", "turn"]

MAX_CALLS = 256
"""Tool calls in one model message; each is a row, and a task while it runs."""
PART_BYTES = 512
"""Overhead counted for each part: a part of one character also makes rows and events."""


class SizeLimitReached(Exception):
    """A model's message has reached its own limit (``bound`` "message") or that of its turn ("turn")."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        super().__init__(bound)


@dataclass(slots=True)
class SizeLimits:
    """The limits of one run: ``message``, the bytes of one model message; ``left``, the bytes left in the turn.

    A turn's bytes are the UTF-8 of its model messages and its tools' results.
    """

    message: int = 4 * 1024 * 1024
    left: int = 16 * 1024 * 1024

    @property
    def is_reached(self) -> bool:
        return self.left <= 0


class MessageSize:
    """Counts one model message while it streams."""

    def __init__(self, limits: SizeLimits) -> None:
        self._limits = limits
        self._left = min(limits.message, limits.left)
        self._bound: Bound = "message" if limits.message <= limits.left else "turn"

    def fit(self, text: str) -> str:
        """The part of the text that fits; empty once the limit was reached."""
        size = len(text) if text.isascii() else len(text.encode())
        if size <= self._left:
            self._take(size)
            return text
        kept = text.encode()[: self._left].decode("utf-8", "ignore")
        self._take(self._left)
        self._left = -1
        return kept

    def has_room(self, text: str) -> bool:
        """Whether the text fits in any case, and something more."""
        return 4 * len(text) < self._left

    def take(self, size: int) -> None:
        """Count something that cannot be cut; ``SizeLimitReached`` if it does not fit."""
        if size > self._left:
            self._left = -1
            raise SizeLimitReached(self._bound)
        self._take(size)

    def check(self) -> None:
        """``SizeLimitReached`` if the limit was reached."""
        if self._left < 0:
            raise SizeLimitReached(self._bound)

    def _take(self, size: int) -> None:
        self._left -= size
        self._limits.left -= size
