"""Makes readable text of a program's output on a terminal, and keeps its head and its tail within a limit. Pure."""

from __future__ import annotations

import re
from collections import deque

_LONGEST_SEQUENCE = 4096
"""Characters of a control sequence that are held back for its end; a longer one is dropped as far as it came."""
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, DCS and the like: titles, links
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-Z\\`-~]"  # ESC and one character
)
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_CONTROLS = re.compile(r"[\x00-\x07\x0b-\x0c\x0e-\x1f\x7f-\x9f]")
_PREVIEW_FACTOR = 4
_LONGEST_LINE = 16 * 1024
"""Characters of an unfinished line that a carriage return can still replace."""


class Cleaner:
    """Removes control sequences from output that comes in pieces, and applies carriage returns and backspaces.

    Lines that overwrite themselves, such as progress bars, are kept as they are at last.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""

    def feed(self, text: str) -> str:
        """The finished lines, and what is too long to wait for its line's end."""
        text = self._held + text
        incomplete = _INCOMPLETE.search(text)
        self._held = ""
        if incomplete is not None:
            if len(incomplete[0]) <= _LONGEST_SEQUENCE:
                self._held = incomplete[0]
            text = text[: incomplete.start()]
        text = self._line + _SEQUENCE.sub("", text)
        if text.endswith("\r"):
            # A line feed may follow.
            text, self._held = text[:-1], "\r" + self._held
        end = text.rfind("\n") + 1
        if len(text) - end > _LONGEST_LINE:
            end = len(text)
        self._line = text[end:]
        return _applied(text[:end])

    def end(self) -> str:
        line, self._line, self._held = self._line, "", ""
        return _applied(line)


def _applied(text: str) -> str:
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    if "\b" in text:
        text = "\n".join(_erased(line) for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def _erased(line: str) -> str:
    kept: list[str] = []
    for character in line:
        if character != "\b":
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)


class Preview:
    """The end of a program's output as readable text."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[str] = deque()
        self._size = 0
        self._is_cut = False

    def add(self, text: str) -> None:
        """Control sequences take room too, so some times as much is remembered."""
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= _PREVIEW_FACTOR * self._most:
            self._size -= len(self._pieces.popleft())
            self._is_cut = True

    def end(self) -> tuple[str, bool]:
        """The text, and whether there was more."""
        text = "".join(self._pieces)
        if self._is_cut:
            # A piece may begin within a sequence or a line.
            text = text[text.find("\n") + 1 :]
        cleaner = Cleaner()
        shown = (cleaner.feed(text) + cleaner.end()).strip("\n")
        return shown[-self._most :], self._is_cut or len(shown) > self._most


class Excerpt:
    """The first and the last characters of a text that comes in pieces, at most ``most``, a third of them from its head."""

    def __init__(self, most: int) -> None:
        self._room = most // 3
        self._most_tail = most - self._room
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._left_out = 0
        self._left_out_lines = 0

    def add(self, text: str) -> None:
        if self._room:
            self._head.append(text[: self._room])
            taken = len(self._head[-1])
            self._room -= taken
            text = text[taken:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while (excess := self._tail_size - self._most_tail) > 0:
            first = self._tail.popleft()
            gone = first[:excess]
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            self._tail_size -= len(gone)
            self._left_out += len(gone)
            self._left_out_lines += gone.count("\n")

    def text(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._left_out:
            return head + tail
        lines = self._left_out_lines
        note = f"[{self._left_out:,} characters with {lines:,} line ends of the output are left out here]"
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{note}\n{tail}"
