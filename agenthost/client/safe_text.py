"""Makes untrusted text safe to print on a terminal. No I/O.

Text from a server is written by models, tools or unknown people. It must not contain control characters that move the
cursor, change the title or the clipboard, or hide text.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_REPLACEMENTS: dict[int, str | None] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    # A carriage return alone would overwrite the line.
    0x0D: None,
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    # Surrogates, which cannot be encoded.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
# Of texts that are shown in lines of the chat's own: also characters that reverse others or end a line, and tabs.
_VISIBLE: dict[int, str] = {
    0x09: "    ",
    0x2028: " ",
    0x2029: " ",
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
}


def plain(text: str) -> str:
    """The text with visible symbols for control characters; line ends and tabs stay."""
    return text.translate(_REPLACEMENTS)


def visible(text: str) -> str:
    """A plain text without tabs and without characters that reverse the order of others."""
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """The text on one line, with escapes for characters that are not printable."""
    return "".join(each if each.isprintable() else _escaped(each) for each in " ".join(text.split()))


def json_line(value: Any) -> str:
    """A value as JSON on one line, complete, with escapes for characters that are not printable."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0xFF else f"\\u{ord(character):04x}"


def width(text: str) -> int:
    """The number of terminal columns of a line."""
    return len(text) if text.isascii() else sum(_columns(each) for each in text)


def truncate(text: str, columns: int) -> str:
    """The text, cut to ``columns`` with an ellipsis if it is longer."""
    if width(text) <= columns:
        return text
    kept, room = [], max(columns - 1, 1)
    for each in text:
        room -= _columns(each)
        if room < 0:
            break
        kept.append(each)
    return "".join(kept) + "…"


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
