"""Incremental parser of server-sent events. No I/O.

Accepts everything that the standard allows, not only what Agenthost sends: other line ends, missing ids, unknown events.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

MOST_CHARACTERS = 64 * 1024 * 1024

_LINE_END = re.compile(r"\r\n|\n|\r")


class EventTooLong(Exception):
    """An event is longer than ``MOST_CHARACTERS``."""


@dataclass(frozen=True, slots=True)
class Event:
    """``id`` is the last id in the stream, of this or an earlier event; empty if there was none."""

    id: str
    name: str
    data: str


class EventReader:
    """Takes chunks of any size and returns complete events."""

    def __init__(self, last_id: str = "") -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pieces: list[str] = []
        self._size = 0
        self._has_started = self._after_cr = False
        self._id, self._name, self._data = last_id, "", list[str]()

    def feed(self, chunk: bytes) -> list[Event]:
        text = self._decode(chunk)
        if self._after_cr and text:
            # The previous chunk ended with CR; this one may begin with the LF of the same line end.
            text = text.removeprefix("\n")
            self._after_cr = False
        if not self._has_started and text:
            self._has_started = True
            text = text.removeprefix("\ufeff")
        self._size += len(text)
        if self._size > MOST_CHARACTERS:
            raise EventTooLong
        if "\n" not in text and "\r" not in text:
            # Joined when the line ends; joining at each chunk would take quadratic time.
            self._pieces.append(text)
            return []
        self._after_cr = text.endswith("\r")
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
