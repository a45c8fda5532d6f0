"""Server-sent events out of bytes as they arrive. Pure.

Reads what the standard allows, not only what our own server writes: other servers end lines otherwise, leave ids out and
send events nobody asked for.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

MOST_CHARACTERS = 64 * 1024 * 1024

_LINE_END = re.compile(r"\r\n|\n|\r")


class EventTooLong(Exception):
    """An event grew beyond any sense."""


@dataclass(frozen=True, slots=True)
class Event:
    """``id`` is the last one the stream gave, here or earlier; empty if it never gave one."""

    id: str
    name: str
    data: str


class EventReader:
    """Fed with chunks cut anywhere, gives each event that is complete."""

    def __init__(self, last_id: str = "") -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pieces: list[str] = []
        self._size = 0
        self._begun = self._after_return = False
        self._id, self._name, self._data = last_id, "", list[str]()

    def feed(self, chunk: bytes) -> list[Event]:
        text = self._decode(chunk)
        if self._after_return and text:
            # The line ended with the chunk before; the other half of its end comes with this one.
            text = text.removeprefix("\n")
            self._after_return = False
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        self._size += len(text)
        if self._size > MOST_CHARACTERS:
            raise EventTooLong
        if "\n" not in text and "\r" not in text:
            # Kept apart until the line ends: joining at each chunk would be quadratic.
            self._pieces.append(text)
            return []
        self._after_return = text.endswith("\r")
        *lines, rest = _LINE_END.split("".join((*self._pieces, text)))
        self._pieces = [rest] if rest else []
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._size = len(rest) + sum(map(len, self._data))
        return events

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._id, self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value
        return None
