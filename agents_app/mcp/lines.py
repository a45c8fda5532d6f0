"""Cuts the output of a program into lines of limited length. Pure."""

from __future__ import annotations

from dataclasses import dataclass

KEPT_OF_LONG = 512


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line that exceeds the limit: only its first and last bytes are kept."""

    head: bytes
    tail: bytes


class Lines:
    """Cuts chunks into lines. Holds at most ``limit`` bytes and one chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._head: bytes | None = None
        """The beginning of the current line, if it is too long; ``_held`` is its end then."""

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that end in this chunk, without line breaks."""
        parts = chunk.split(b"\n")
        found: list[bytes | TooLong] = []
        for part in parts[:-1]:
            self._add(part)
            found.append(self._taken())
        self._add(parts[-1])
        return found

    def rest(self) -> bytes | TooLong | None:
        """The last line, if no line break ends it."""
        return self._taken() if self._held or self._head is not None else None

    def _add(self, part: bytes) -> None:
        self._held += part
        if self._head is None and len(self._held) > self._limit:
            self._head = bytes(self._held[:KEPT_OF_LONG])
        if self._head is not None:
            del self._held[:-KEPT_OF_LONG]

    def _taken(self) -> bytes | TooLong:
        held, head = bytes(self._held), self._head
        self._held.clear()
        self._head = None
        return held.removesuffix(b"\r") if head is None else TooLong(head, held.removesuffix(b"\r"))
