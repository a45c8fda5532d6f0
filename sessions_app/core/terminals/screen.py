"""What a terminal shows: its output since it was cleared, in parts, with a limited total. Pure.

A part is output of a command (``command`` has its id), or any other output. When the limit is exceeded, the oldest output is
cut, so a client that has seen all events shows a text that ends with this one (R311).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json
from sessions_app.core.base.events import Kind

MOST_PARTS = 500
_LINE_WITHIN = 4096
"""A cut is moved to the beginning of the next line, if one begins within this number of characters."""


@dataclass(slots=True)
class Part:
    """``command`` None: output outside of a command. ``at``: when it began, in ms since 1970; ``ms``: how long it ran."""

    text: str = ""
    command: str | None = None
    line: str = ""
    at: int = 0
    is_complete: bool = False
    code: int | None = None
    ms: int | None = None

    def document(self) -> dict[str, Any]:
        if self.command is None:
            return {"text": self.text}
        found = {"text": self.text, "command": self.command, "line": self.line, "at": self.at, "done": self.is_complete}
        return found | {name: value for name, value in (("code", self.code), ("ms", self.ms)) if value is not None}

    @staticmethod
    def of(document: Mapping[str, Any]) -> Part:
        return Part(
            document["text"],
            document.get("command"),
            document.get("line", ""),
            document.get("at", 0),
            document.get("done", False),
            document.get("code"),
            document.get("ms"),
        )


@dataclass(slots=True)
class Screen:
    """``detects``: whether the shell reports its commands."""

    most: int
    parts: list[Part] = field(default_factory=list)
    detects: bool = False
    _size: int = 0

    @staticmethod
    def read(text: str, most: int, *, detects: bool) -> Screen:
        parts = [Part.of(each) for each in exact_json.loads(text)]
        return Screen(most, parts, detects, sum(len(part.text) for part in parts))

    def text(self) -> str:
        return exact_json.dumps([part.document() for part in self.parts])

    def shorten(self, most: int) -> None:
        """Leave the end of the output, at most this many characters."""
        self.most = min(self.most, most)
        self._cut()

    def apply(self, kind: str, data: str) -> None:
        """Apply an event; kinds that do not change the screen are ignored. ``data``: its payload as JSON text."""
        if kind == Kind.TERMINAL_DATA:
            self._add(exact_json.loads(data)["delta"])
        elif kind == Kind.TERMINAL_CLEARED:
            self.parts, self._size = [], 0
        elif kind == Kind.TERMINAL_COMMANDS_AVAILABLE:
            self.detects = True
        elif kind == Kind.TERMINAL_COMMAND_STARTED:
            payload = exact_json.loads(data)
            self.detects = True
            self.parts.append(Part(command=payload["command"], line=payload["line"], at=payload["at"]))
            self._cut()
        elif kind == Kind.TERMINAL_COMMAND_ENDED:
            payload = exact_json.loads(data)
            for part in self.parts:
                if part.command is not None and part.command == payload["command"]:
                    part.is_complete, part.code, part.ms = True, payload.get("code"), payload.get("ms")

    def _add(self, text: str) -> None:
        last = self.parts[-1] if self.parts else None
        if last is None or (last.command is not None and last.is_complete):
            last = Part()
            self.parts.append(last)
        last.text += text
        self._size += len(text)
        self._cut()

    def _cut(self) -> None:
        excess = self._size - self.most
        while len(self.parts) > 1 and (excess >= len(self.parts[0].text) > 0 or len(self.parts) > MOST_PARTS):
            gone = len(self.parts.pop(0).text)
            self._size -= gone
            excess -= gone
        if excess <= 0 or not self.parts:
            return
        for part in self.parts:
            if part.text:
                line = part.text.find("\n", excess - 1, excess + _LINE_WITHIN)
                cut = excess if line < 0 or line + 1 >= len(part.text) else line + 1
                part.text = part.text[cut:]
                self._size -= cut
                return
