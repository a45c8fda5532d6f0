"""Text that a terminal shows and never obeys. Pure.

What comes from a server was written by a model, by a tool or by strangers: it must not move the cursor, write titles or
the clipboard, or hide what it says.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_SHOWN: dict[int, str | None] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    # Half of a line's end as some systems write it; alone it would let a line be written over.
    0x0D: None,
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    # Half a character: no encoding has it.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


def plain(text: str) -> str:
    """The text with its control characters made visible; line ends and tabs stay."""
    return text.translate(_SHOWN)


def one_line(text: str) -> str:
    """The text on one line, with every character that does not show itself written out."""
    return "".join(each if each.isprintable() else _written(each) for each in " ".join(text.split()))


def exact(value: Any) -> str:
    """A value as JSON on one line in which nothing can hide: what a person is to judge must be all there."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else _written(each) for each in text)


def _written(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0xFF else f"\\u{ord(character):04x}"


def width(text: str) -> int:
    """How many columns a line of it takes."""
    return sum(_columns(each) for each in text)


def cut(text: str, columns: int) -> str:
    """As much of a line as fits, with a mark where something is missing."""
    if width(text) <= columns:
        return text
    taken, left = [], max(columns - 1, 1)
    for each in text:
        left -= _columns(each)
        if left < 0:
            break
        taken.append(each)
    return "".join(taken) + "…"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
