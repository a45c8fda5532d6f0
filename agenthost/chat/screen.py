"""What a person sees: the only module that writes to the terminal.

Everything written passes through printable.py here, so nothing that came from a server can drive the terminal; the few
escape sequences there are, are made here.
"""

from __future__ import annotations

import io
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from agenthost.chat.safe_text import cut, exact, one_line, plain, width

_STYLES = {"dim": "2", "bold": "1", "red": "31", "cyan": "36", "yellow": "33"}
_LINES_OF_RESULT = 4
_LINES_OF_ARGUMENTS = 16
_LEAST_ROOM = 16
_FALLBACK = {"…": "...", "→": "->", "›": ">", "•": "*"}


class Screen:
    """``answers`` gets what the agent says, ``asides`` everything else; at a terminal they are the same."""

    def __init__(self, answers: TextIO, asides: TextIO, *, colour: bool, thinking: bool = True, quiet: bool = False) -> None:
        for stream in (answers, asides):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that cannot show a letter shows another; that is no reason to stop talking.
                stream.reconfigure(errors="replace")
        self._answers = answers
        self._asides = asides
        self._colour = colour
        self.shows_thinking = thinking
        self._quiet = quiet
        self._speaking: str = ""
        """What is being written bit by bit: ``text``, ``thinking`` or nothing."""
        self._open: TextIO | None = None
        """Where a line is begun and not ended."""
        self._said_something = False
        self._apart = answers is not asides and not (answers.isatty() and asides.isatty())
        """What is said aside does not stand in the middle of an answer."""
        encoding = (asides.encoding or "ascii").lower().replace("-", "").replace("_", "")
        self.is_unicode = encoding.startswith(("utf", "ucs"))

    @property
    def columns(self) -> int:
        return max(shutil.get_terminal_size((80, 24)).columns, 20)

    # --- what the agent says, bit by bit ---

    def text(self, delta: str) -> None:
        self._speak("text", delta)

    def thinking(self, delta: str) -> None:
        if self.shows_thinking and not self._quiet:
            self._speak("thinking", delta)

    def _speak(self, kind: str, delta: str) -> None:
        if not delta:
            return
        stream = self._answers if kind == "text" else self._asides
        if self._speaking != kind:
            self.end_line()
            if kind == "text" and self._said_something and self._answers is not self._asides:
                # Two messages of one turn, in a file or a pipe.
                self._answers.write("\n")
            if kind == "thinking" and not self._colour:
                stream.write("(thinking) ")
            self._speaking = kind
        self._said_something = self._said_something or kind == "text"
        shown = self._shown(delta)
        stream.write(self._styled(shown, "dim") if kind == "thinking" else shown)
        stream.flush()
        self._open = None if delta.endswith("\n") else stream

    def message_ends(self) -> None:
        """What comes next is another message, even if it is of the same kind."""
        self.end_line()
        self._speaking = ""

    # --- lines of our own ---

    def end_line(self) -> None:
        """Begin at the left edge again."""
        if self._open is not None:
            self._open.write("\n")
            self._open.flush()
            self._open = None

    def _turn_aside(self) -> None:
        if not (self._apart and self._open is self._answers):
            self.message_ends()

    def line_was_ended(self) -> None:
        """Somebody else ended the line: what a person types is shown by the terminal itself."""
        if not self._apart:
            self._open = None

    def line_was_begun(self) -> None:
        """Somebody else wrote into the line, as the terminal does with ``^C``."""
        if not self._apart:
            self._open = self._asides

    def line(self, text: str = "", style: str = "", *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._turn_aside()
        self._asides.write(self._styled(self._shown(text), style) + "\n")
        self._asides.flush()

    def note(self, text: str) -> None:
        self.line(text, "dim")

    def fault(self, text: str) -> None:
        self.line(text, "red", always=True)

    def heading(self, text: str) -> None:
        self.line(text, "bold")

    def rows(self, rows: Sequence[Sequence[str]], indent: str = "  ", *, cuts: bool = False) -> None:
        """A table without lines; the last column takes what room is left, on several lines or (``cuts``) on one."""
        rows = [[one_line(cell) for cell in row] for row in rows]
        if not rows:
            return
        widths = [min(max(width(row[column]) for row in rows), 32) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = [cell + " " * max(wide - width(cell), 0) for cell, wide in zip(row, widths, strict=False)]
            head = indent + "".join(f"{cell}  " for cell in cells)
            room = self.columns - width(head)
            if cuts or room < _LEAST_ROOM:
                self.line(cut((head + row[-1]).rstrip(), self.columns))
                continue
            first, *others = textwrap.wrap(row[-1], room) or [""]
            self.line((head + first).rstrip())
            for each in others:
                self.line(" " * width(head) + each)

    def call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """A tool call, briefly. False if there is more to it than was shown."""
        self.message_ends()
        written = [f"{one_line(key)}={exact(value)}" for key, value in arguments.items()]
        line = f"→ {one_line(name)}({', '.join(written)})"
        if width(line) <= self.columns:
            self.line(line, "cyan")
            return True
        self.line(f"→ {one_line(name)}", "cyan")
        room = self.columns * 2
        for each in written[:_LINES_OF_ARGUMENTS]:
            self.line(f"    {cut(each, room)}", "cyan")
        more = len(written) - _LINES_OF_ARGUMENTS
        if more > 0:
            self.line(f"    … and {more} more", "cyan")
        return more <= 0 and all(width(each) <= room for each in written)

    def whole_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """A tool call with nothing left out."""
        self.line(f"→ {one_line(name)}", "cyan")
        for key, value in arguments.items():
            self.line(f"    {one_line(key)}={exact(value)}", "cyan")

    def result(self, text: str) -> None:
        """What a tool gave, briefly."""
        lines = plain(text).rstrip("\n").split("\n")
        for number, each in enumerate(lines[:_LINES_OF_RESULT]):
            self.line(cut(("  = " if not number else "    ") + each.expandtabs(4), self.columns), "dim")
        if len(lines) > _LINES_OF_RESULT:
            self.line(f"    … and {len(lines) - _LINES_OF_RESULT} more lines", "dim")

    def ask(self, prompt: str, style: str = "yellow") -> None:
        """The words before an answer; the cursor stays behind them."""
        self._turn_aside()
        self._asides.write(self._styled(self._shown(prompt), style))
        self._asides.flush()

    def prompt(self, text: str) -> str:
        """A prompt for readline, which has to be told what takes no room."""
        return f"\001\033[1m\002{text}\001\033[0m\002" if self._colour else text

    # --- how ---

    def _shown(self, text: str) -> str:
        text = plain(text)
        if not self.is_unicode:
            for sign, instead in _FALLBACK.items():
                text = text.replace(sign, instead)
        return text

    def _styled(self, text: str, style: str) -> str:
        if not self._colour or not style or not text:
            return text
        return f"\033[{_STYLES[style]}m{text}\033[0m"


def wants_colour(stream: TextIO) -> bool:
    """Colours are for terminals that know them and people who did not say no (``NO_COLOR``)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def text_of(content: Any) -> str:
    """What a message's content comes to in words."""
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
    """An image's address, or what there is to say of one that is its own content."""
    if not url.startswith("data:"):
        return url
    kind, _, content = url[5:].partition(";base64,")
    return f"{kind}, {len(content) * 3 // 4:,} bytes"
