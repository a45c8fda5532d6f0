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

from agenthost.chat.markdown import Markdown
from agenthost.chat.wrapping import Wrapper
from agenthost.client.safe_text import json_line, one_line, plain, truncate, width

_STYLES = {"dim": "2", "bold": "1", "red": "31", "cyan": "36", "yellow": "33"}
_LINES_OF_RESULT = 4
_LINES_OF_ARGUMENTS = 16
_LEAST_ROOM = 16
_SETTLES_AFTER, _WAITS_AFTER = 0.1, 0.4
"""Seconds without text after which an unfinished word is shown, and after which the chat shows that it waits."""
_FRAMES, _PLAIN_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
_ERASE = "\r\033[K"
_FALLBACK = {"…": "...", "→": "->", "›": ">", "•": "*"}


class Screen:
    """``answers`` gets the agent's text, ``notes`` everything else; at a terminal both are the same stream.

    ``renders``: the agent's text is shown as the Markdown that it is; without it, as it was written.
    """

    def __init__(
        self,
        answers: TextIO,
        notes: TextIO,
        *,
        colour: bool,
        thinking: bool = True,
        quiet: bool = False,
        renders: bool = False,
    ) -> None:
        for stream in (answers, notes):
            if isinstance(stream, io.TextIOWrapper):
                # Characters that the terminal's encoding lacks are replaced instead of raising an error.
                stream.reconfigure(errors="replace")
        self._answers = answers
        self._notes = notes
        self._colour = colour
        self.shows_thinking = thinking
        self._quiet = quiet
        self._renders = renders
        self._rendering: tuple[Markdown, Wrapper, TextIO] | None = None
        """The message that is being rendered."""
        self._waited: int | None = None
        """The frame of the line that shows that the chat waits; None if there is none."""
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
        self._remove_wait()
        if self._streaming != kind:
            self._end_rendering()
            self.end_line()
            if kind == "text" and self._has_text and self._answers is not self._notes:
                # An empty line between messages of one turn.
                self._answers.write("\n")
            if kind == "thinking" and not self._colour:
                stream.write("(thinking) ")
            self._streaming = kind
        self._has_text = self._has_text or kind == "text"
        if self._renders and (kind == "text" or self._colour):
            self._render(kind, stream, self._printable(delta))
            return
        text = self._printable(delta)
        stream.write(self._styled(text, "dim") if kind == "thinking" else text)
        stream.flush()
        self._open = None if delta.endswith("\n") else stream

    def _render(self, kind: str, stream: TextIO, text: str) -> None:
        if self._rendering is None:
            wrapper = Wrapper(stream.write, lambda: self.columns, _STYLES["dim"] if kind == "thinking" else "")
            self._rendering = Markdown(wrapper, self.columns, unicode=self.is_unicode), wrapper, stream
        markdown, wrapper, _ = self._rendering
        markdown.columns = self.columns
        markdown.feed(text)
        self._flush_rendered(wrapper, stream)

    def _flush_rendered(self, wrapper: Wrapper, stream: TextIO) -> None:
        wrapper.flush()
        stream.flush()
        self._open = stream if wrapper.is_line_open else None

    def _end_rendering(self) -> None:
        if self._rendering is not None:
            markdown, wrapper, stream = self._rendering
            self._rendering = None
            if self._open is not None and not wrapper.is_line_open:
                # Something else is in the line, for example ``^C``.
                self.end_line()
            markdown.finish()
            self._flush_rendered(wrapper, stream)

    def answer(self, text: str) -> None:
        """Show a whole message of the agent."""
        self.end_message()
        if self._renders and not self._quiet:
            self.text(text)
            self.end_message()
        else:
            self.line(text)

    def end_message(self) -> None:
        """Later text belongs to another message, even if it is of the same kind."""
        self._end_rendering()
        self.end_line()
        self._streaming = ""

    # --- waiting ---

    def wait(self, quiet_seconds: float, waited: float) -> None:
        """Called often while the agent is at work: nothing has come for ``quiet_seconds``, and it works for ``waited``."""
        if not self._renders:
            return
        if self._rendering is not None and quiet_seconds >= _SETTLES_AFTER:
            _, wrapper, stream = self._rendering
            if wrapper.holds_word:
                self._remove_wait()
                wrapper.settle()
                self._flush_rendered(wrapper, stream)
        if self._open is None and self._colour and not self._quiet and quiet_seconds >= _WAITS_AFTER:
            self._show_wait(waited)

    def _show_wait(self, waited: float) -> None:
        frames = _FRAMES if self.is_unicode else _PLAIN_FRAMES
        is_new = self._waited is None
        self._waited = 0 if self._waited is None else (self._waited + 1) % len(frames)
        shown = truncate(f"{frames[self._waited]} Waiting for the agent {waited:4.0f} s", self.columns - 1)
        # The cursor returns to where the user may be typing.
        before, after = (_ERASE, "") if is_new else ("\0337\r", "\0338")
        self._notes.write(before + self._styled(self._printable(shown), "dim") + after)
        self._notes.flush()

    def _remove_wait(self) -> None:
        if self._waited is not None:
            self._waited = None
            self._notes.write(_ERASE)
            self._notes.flush()

    # --- notes and prompts ---

    def end_line(self) -> None:
        """End an unfinished line."""
        self._remove_wait()
        if self._open is not None:
            self._open.write("\n")
            self._open.flush()
            self._open = None
            if self._rendering is not None:
                self._rendering[1].on_line_broken()

    def _begin_note(self) -> None:
        self._remove_wait()
        if self._is_separate and self._open is self._answers:
            return
        if self._rendering is None:
            self.end_message()
            return
        # The note is between two lines of a message, which goes on behind it.
        _, wrapper, stream = self._rendering
        if wrapper.holds_word:
            if self._open is not None and not wrapper.is_line_open:
                self.end_line()
            wrapper.settle()
            self._flush_rendered(wrapper, stream)
        self.end_line()

    def on_line_ended(self) -> None:
        """The terminal has ended the line, by echoing the user's Enter."""
        if self._is_separate:
            return
        self._open = None
        if self._rendering is not None:
            self._rendering[1].on_line_broken()
        if self._waited is not None:
            # The line above shows that the chat waited, and what was typed behind it.
            self._waited = None
            self._notes.write("\033[A" + _ERASE)
            self._notes.flush()

    def on_line_started(self) -> None:
        """The terminal has written into the line, for example ``^C``."""
        if not self._is_separate:
            self._remove_wait()
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
