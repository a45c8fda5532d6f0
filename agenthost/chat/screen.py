"""Terminal output. No other module writes to the terminal.

All text passes through safe_text.py, so that text from a server cannot control the terminal. The few escape sequences
that are used are made here.
"""

from __future__ import annotations

import io
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from agenthost.chat.safe_text import json_line, one_line, plain, truncate, width

_STYLES = {"dim": "2", "bold": "1", "red": "31", "cyan": "36", "yellow": "33"}
_LINES_OF_RESULT = 4
_LINES_OF_ARGUMENTS = 16
_LEAST_ROOM = 16
_FALLBACK = {"…": "...", "→": "->", "›": ">", "•": "*"}


class Screen:
    """``answers`` gets the agent's text, ``notes`` everything else; at a terminal both are the same stream."""

    def __init__(self, answers: TextIO, notes: TextIO, *, colour: bool, thinking: bool = True, quiet: bool = False) -> None:
        for stream in (answers, notes):
            if isinstance(stream, io.TextIOWrapper):
                # Characters that the terminal's encoding lacks are replaced instead of raising an error.
                stream.reconfigure(errors="replace")
        self._answers = answers
        self._notes = notes
        self._colour = colour
        self.shows_thinking = thinking
        self._quiet = quiet
        self._streaming: str = ""
        """The kind of text that is being streamed: ``text``, ``thinking`` or empty."""
        self._open: TextIO | None = None
        """The stream with an unfinished line."""
        self._has_text = False
        self._is_separate = answers is not notes and not (answers.isatty() and notes.isatty())
        """The two streams go to different places, so a note does not interrupt a line of the answer."""
        encoding = (notes.encoding or "ascii").lower().replace("-", "").replace("_", "")
        self.is_unicode = encoding.startswith(("utf", "ucs"))

    @property
    def columns(self) -> int:
        return max(shutil.get_terminal_size((80, 24)).columns, 20)

    # --- streamed text of the agent ---

    def text(self, delta: str) -> None:
        self._stream_text("text", delta)

    def thinking(self, delta: str) -> None:
        if self.shows_thinking and not self._quiet:
            self._stream_text("thinking", delta)

    def _stream_text(self, kind: str, delta: str) -> None:
        if not delta:
            return
        stream = self._answers if kind == "text" else self._notes
        if self._streaming != kind:
            self.end_line()
            if kind == "text" and self._has_text and self._answers is not self._notes:
                # An empty line between messages of one turn.
                self._answers.write("\n")
            if kind == "thinking" and not self._colour:
                stream.write("(thinking) ")
            self._streaming = kind
        self._has_text = self._has_text or kind == "text"
        text = self._printable(delta)
        stream.write(self._styled(text, "dim") if kind == "thinking" else text)
        stream.flush()
        self._open = None if delta.endswith("\n") else stream

    def end_message(self) -> None:
        """Later text belongs to another message, even if it is of the same kind."""
        self.end_line()
        self._streaming = ""

    # --- notes and prompts ---

    def end_line(self) -> None:
        """End an unfinished line."""
        if self._open is not None:
            self._open.write("\n")
            self._open.flush()
            self._open = None

    def _begin_note(self) -> None:
        if not (self._is_separate and self._open is self._answers):
            self.end_message()

    def on_line_ended(self) -> None:
        """The terminal has ended the line, by echoing the user's Enter."""
        if not self._is_separate:
            self._open = None

    def on_line_started(self) -> None:
        """The terminal has written into the line, for example ``^C``."""
        if not self._is_separate:
            self._open = self._notes

    def line(self, text: str = "", style: str = "", *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._begin_note()
        self._notes.write(self._styled(self._printable(text), style) + "\n")
        self._notes.flush()

    def note(self, text: str) -> None:
        self.line(text, "dim")

    def error(self, text: str) -> None:
        self.line(text, "red", always=True)

    def heading(self, text: str) -> None:
        self.line(text, "bold")

    def rows(self, rows: Sequence[Sequence[str]], indent: str = "  ", *, truncate_last: bool = False) -> None:
        """A table. The last column uses the remaining width, on several lines or, with ``truncate_last``, on one."""
        rows = [[one_line(cell) for cell in row] for row in rows]
        if not rows:
            return
        widths = [min(max(width(row[column]) for row in rows), 32) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = [cell + " " * max(wide - width(cell), 0) for cell, wide in zip(row, widths, strict=False)]
            head = indent + "".join(f"{cell}  " for cell in cells)
            room = self.columns - width(head)
            if truncate_last or room < _LEAST_ROOM:
                self.line(truncate((head + row[-1]).rstrip(), self.columns))
                continue
            first, *others = textwrap.wrap(row[-1], room) or [""]
            self.line((head + first).rstrip())
            for each in others:
                self.line(" " * width(head) + each)

    def call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Show a tool call, shortened if it is long; returns False if something was left out."""
        self.end_message()
        parts = [f"{one_line(key)}={json_line(value)}" for key, value in arguments.items()]
        line = f"→ {one_line(name)}({', '.join(parts)})"
        if width(line) <= self.columns:
            self.line(line, "cyan")
            return True
        self.line(f"→ {one_line(name)}", "cyan")
        room = self.columns * 2
        for each in parts[:_LINES_OF_ARGUMENTS]:
            self.line(f"    {truncate(each, room)}", "cyan")
        more = len(parts) - _LINES_OF_ARGUMENTS
        if more > 0:
            self.line(f"    … and {more} more", "cyan")
        return more <= 0 and all(width(each) <= room for each in parts)

    def whole_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Show a tool call in full."""
        self.line(f"→ {one_line(name)}", "cyan")
        for key, value in arguments.items():
            self.line(f"    {one_line(key)}={json_line(value)}", "cyan")

    def result(self, text: str) -> None:
        """Show the first lines of a tool's result."""
        lines = plain(text).rstrip("\n").split("\n")
        for number, each in enumerate(lines[:_LINES_OF_RESULT]):
            self.line(truncate(("  = " if not number else "    ") + each.expandtabs(4), self.columns), "dim")
        if len(lines) > _LINES_OF_RESULT:
            self.line(f"    … and {len(lines) - _LINES_OF_RESULT} more lines", "dim")

    def ask(self, prompt: str, style: str = "yellow") -> None:
        """Show a prompt; the cursor stays behind it."""
        self._begin_note()
        self._notes.write(self._styled(self._printable(prompt), style))
        self._notes.flush()

    def prompt(self, text: str) -> str:
        """A prompt for readline, with escape sequences marked as taking no columns."""
        return f"\001\033[1m\002{text}\001\033[0m\002" if self._colour else text

    # --- formatting ---

    def _printable(self, text: str) -> str:
        text = plain(text)
        if not self.is_unicode:
            for sign, replacement in _FALLBACK.items():
                text = text.replace(sign, replacement)
        return text

    def _styled(self, text: str, style: str) -> str:
        if not self._colour or not style or not text:
            return text
        return f"\033[{_STYLES[style]}m{text}\033[0m"


def uses_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, and ``NO_COLOR`` is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def text_of(content: Any) -> str:
    """The content of a message as text."""
    if isinstance(content, str):
        return content
    pieces = []
    for block in content if isinstance(content, list) else []:
        match block.get("type") if isinstance(block, dict) else None:
            case "text":
                pieces.append(str(block.get("text", "")))
            case "image":
                pieces.append(f"[image {image_name(str(block.get('url', '')))}]")
    return "\n".join(pieces)


def image_name(url: str) -> str:
    """The URL of an image, or type and size of a data URL."""
    if not url.startswith("data:"):
        return url
    kind, _, content = url[5:].partition(";base64,")
    return f"{kind}, {len(content) * 3 // 4:,} bytes"
