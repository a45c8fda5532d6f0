"""How much a turn may store: counted while it grows, so that nothing is held or written that will not be kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["message", "turn"]

MOST_CALLS = 256
"""Tool calls of one model message: each is a row, and a task once it runs."""
PART_BYTES = 512
"""What a part counts beside its text: parts of one character are rows and events like any other."""


class Full(Exception):
    """There is no room for more of a model's message. ``bound``: whose limit it is."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        super().__init__(bound)


@dataclass(slots=True)
class Room:
    """Of one run: the most bytes of one model message, and what is left of the turn's.

    A turn's bytes are those of its models' messages and its tools' results, in UTF-8.
    """

    message: int = 4 * 1024 * 1024
    left: int = 16 * 1024 * 1024

    @property
    def is_full(self) -> bool:
        return self.left <= 0


class Filling:
    """One model message as it grows."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._left = min(room.message, room.left)
        self._bound: Bound = "message" if room.message <= room.left else "turn"

    def fit(self, text: str) -> str:
        """As much of the text as there is room for; nothing once there was too much."""
        size = len(text) if text.isascii() else len(text.encode())
        if size <= self._left:
            self._take(size)
            return text
        kept = text.encode()[: self._left].decode("utf-8", "ignore")
        self._take(self._left)
        self._left = -1
        return kept

    def take(self, size: int) -> None:
        """Room for something that is stored whole or not at all; ``Full`` if there is none."""
        if size > self._left:
            self._left = -1
            raise Full(self._bound)
        self._take(size)

    def check(self) -> None:
        """``Full`` if something did not fit."""
        if self._left < 0:
            raise Full(self._bound)

    def _take(self, size: int) -> None:
        self._left -= size
        self._room.left -= size
