"""Replaces text in a file's content. Pure.

The text has to be in the file exactly, and once unless all places are meant: a model that remembers a file wrongly changes
nothing. The errors contain what it needs for a second attempt.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agents_app.errors import ToolFailed
from agents_app.tools.files.text import lines_of, numbered, printable, uses_crlf

MOST_PLACES = 20
"""Line numbers that an error lists."""
MOST_SIMILAR_LINES = 12
_MOST_LOOKED_AT = 5_000
"""Lines that are compared to find similar ones, each up to ``_LONGEST_COMPARED`` characters."""
_LONGEST_COMPARED = 300
_SIMILAR = 0.6
_NUMBER = re.compile(r" *\d+\t")


@dataclass(frozen=True, slots=True)
class Edited:
    """The new content, the lines of the first replaced places, and the number of all."""

    content: str
    lines: Sequence[int]
    count: int


def replace(content: str, old: str, new: str, name: str, *, everywhere: bool) -> Edited:
    """``content`` with ``old`` replaced by ``new``. ``ToolFailed`` if ``old`` is not in it, or is in it more than once.

    Line feeds of ``old`` and ``new`` stand for the line ends of the file: they match CR LF, and become CR LF in a file of
    such lines.
    """
    if not old:
        raise ToolFailed("old_text is empty: give the text to replace, or use write_file to write the whole file")
    if uses_crlf(content):
        old, new = _crlf(old), _crlf(new)
    elif old not in content and "\r\n" in content and _crlf(old) in content:
        # Some lines end with CR LF, and those of this place do.
        old, new = _crlf(old), _crlf(new)
    if old == new:
        raise ToolFailed("old_text and new_text are the same: nothing to change")
    count = content.count(old)
    if not count:
        raise ToolFailed(_not_found(content, old, name))
    lines = _places(content, old)
    if count > 1 and not everywhere:
        listed = ", ".join(map(str, lines))
        more = f" and {count - len(lines)} more" if count > len(lines) else ""
        raise ToolFailed(
            f"old_text is {count} times in {name}, at lines {listed}{more}: add lines around it until it is unique, "
            "or set replace_all"
        )
    return Edited(content.replace(old, new), lines, count)


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(content: str, old: str) -> list[int]:
    """The lines of the first places."""
    lines: list[int] = []
    at, line, counted = content.find(old), 1, 0
    while at >= 0 and len(lines) < MOST_PLACES:
        line += content.count("\n", counted, at)
        counted = at
        lines.append(line)
        at = content.find(old, at + len(old))
    return lines


def _not_found(content: str, old: str, name: str) -> str:
    text = f"old_text is not in {name}"
    wanted = [line.rstrip("\r\n") for line in lines_of(old)]
    if all(_NUMBER.match(line) for line in wanted if line.strip()):
        return f"{text}: it begins with line numbers; give the lines without the numbers and the tab"
    present = [line.rstrip("\r\n") for line in lines_of(content)]
    same = _same_but_for_spaces(present, wanted)
    if same is not None:
        return f"{text}, but these lines differ from it in white space only:\n{_shown(present, same, len(wanted))}"
    near = _similar(present, wanted)
    if near is None:
        return f"{text}, and no line is similar to it: read the file again"
    return f"{text}. The most similar lines are:\n{_shown(present, near, len(wanted))}"


def _same_but_for_spaces(present: Sequence[str], wanted: Sequence[str]) -> int | None:
    def squeezed(lines: Sequence[str]) -> list[str]:
        return ["".join(line.split()) for line in lines]

    searched, looked_for = squeezed(present), squeezed(wanted)
    if not any(looked_for):
        return None
    for start in range(len(searched) - len(looked_for) + 1):
        if searched[start] == looked_for[0] and searched[start : start + len(looked_for)] == looked_for:
            return start
    return None


def _similar(present: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The index of the first of the lines that are most similar, found by the longest line."""
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    looked_for = wanted[longest].strip()[:_LONGEST_COMPARED]
    if not looked_for:
        return None
    best, found = _SIMILAR, None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(looked_for)
    for index, line in enumerate(present[:_MOST_LOOKED_AT]):
        matcher.set_seq1(line.strip()[:_LONGEST_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, index
    return None if found is None else max(0, found - longest)


def _shown(present: Sequence[str], start: int, count: int) -> str:
    end = min(len(present), start + min(count, MOST_SIMILAR_LINES))
    return "\n".join(numbered(index + 1, printable(present[index])[:_LONGEST_COMPARED]) for index in range(start, end))
