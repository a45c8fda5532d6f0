"""Wraps streamed, styled text by words. No I/O: text leaves through a function.

Text is only appended and the cursor is never moved back, so a resized window, a long answer and text that the user types
meanwhile cannot disturb what is on the screen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agenthost.client.safe_text import width

_RUNS = re.compile(r" +|[^ ]+")
_WIDE = re.compile(r"([ᄀ-ᅟ⺀-鿿가-힣豈-﫿︰-﹏＀-｠￠-￦\U0001f300-\U0001faff\U00020000-\U0003fffd])")
"""Characters of scripts without blanks, and pictures: a line may end before and after each of them."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text of one style; ``style`` has the numbers of the terminal's sequence for it, joined with ``;``."""

    text: str
    style: str = ""


def joined(*styles: str) -> str:
    return ";".join(filter(None, styles))


def escaped(text: str, style: str) -> str:
    return f"\033[{style}m{text}\033[0m" if style and text else text


class Wrapper:
    """``base`` is the style of all text; ``columns`` returns the width, which may change at any time."""

    def __init__(self, write: Callable[[str], object], columns: Callable[[], int], base: str = "") -> None:
        self._write, self._columns, self._base = write, columns, base
        self._column = 0
        self._hanging = Run("")
        self._word: list[Run] = []
        """The current word, which is written when it is complete."""
        self._is_begun = False
        """The beginning of the current word is on the screen, so the rest has to follow it."""
        self._is_first = True
        """Nothing but an indentation is on the current line."""
        self._unwritten: list[Run] = []

    @property
    def is_line_open(self) -> bool:
        return self._column > 0

    @property
    def holds_word(self) -> bool:
        return bool(self._word)

    def flush(self) -> None:
        """Write what has been added, but for a word that is not complete."""
        if self._unwritten:
            self._write("".join(escaped(run.text, run.style) for run in self._unwritten))
            self._unwritten.clear()

    def begin_line(self, first: Sequence[Run], hanging: Run) -> None:
        """Begin a line with ``first``; lines that continue it begin with ``hanging``."""
        self._hanging = hanging
        for run in first:
            self._put(run)
        self._is_first = True

    def add(self, run: Run) -> None:
        """Add text without line ends. Its last word is held until it is complete."""
        for text in _RUNS.findall(run.text):
            if text[0] != " ":
                for part in _WIDE.split(text) if not text.isascii() else (text,):
                    if not part:
                        continue
                    if _WIDE.fullmatch(part):
                        self._end_word()
                        self._word.append(Run(part, run.style))
                        self._end_word()
                    else:
                        self._word.append(Run(part, run.style))
                continue
            self._end_word()
            room = self._columns() - self._column
            if room > 0 and not (self._is_first and self._column <= width(self._hanging.text)):
                self._put(Run(text[:room], run.style))

    def settle(self) -> None:
        """Write the beginning of a word that is not complete."""
        if self._word:
            self._place()
            self._is_begun = True

    def unwrapped(self, run: Run) -> None:
        """Text that keeps its form; the terminal itself continues it on the next line."""
        self._end_word()
        self._put(run)

    def end_line(self) -> None:
        self._end_word()
        self._unwritten.append(Run("\n"))
        self.on_line_broken()
        self._hanging = Run("")

    def on_line_broken(self) -> None:
        """Something else has ended the line; the text continues on the next one."""
        self._column = 0
        self._is_first = True
        self._is_begun = False

    def _end_word(self) -> None:
        self._place()
        self._is_begun = False

    def _place(self) -> None:
        if not self._word:
            return
        if not self._is_begun:
            needed = sum(width(run.text) for run in self._word)
            if not self._is_first and self._column + needed > self._columns():
                self._unwritten.append(Run("\n"))
                self.on_line_broken()
            if self._column == 0 and self._hanging.text:
                self._put(self._hanging)
        for run in self._word:
            self._put(run)
        self._word.clear()
        self._is_first = False

    def _put(self, run: Run) -> None:
        if not run.text:
            return
        style = joined(self._base, run.style)
        if self._unwritten and self._unwritten[-1].style == style and self._unwritten[-1].text != "\n":
            # One sequence for neighbouring words of one style.
            self._unwritten[-1] = Run(self._unwritten[-1].text + run.text, style)
        else:
            self._unwritten.append(Run(run.text, style))
        self._column += width(run.text)
        columns = self._columns()
        if self._column > columns:
            # A word that is wider than the window: the terminal has continued it itself.
            self._column = (self._column - 1) % columns + 1
