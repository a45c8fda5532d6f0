"""HTML tokenizer: reads broken pages as browsers do, in linear time (decision 0041).

Nothing is searched twice: an unclosed construct takes the rest of the page, as HTML's rules demand.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_ATTRIBUTES = 200

# Elements without markup in their content; those of the first group have no entities either.
_RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes"})
_UNMARKED = _RAW | {"textarea", "title"}

_NAME = re.compile(r"[^ \t\n\f\r/>]+")
_SPACE = re.compile(r"[ \t\n\f\r/]*")
_ATTRIBUTE = re.compile(r"=?[^ \t\n\f\r/>=]*")
_EQUALS = re.compile(r"[ \t\n\f\r]*=[ \t\n\f\r]*")
_UNQUOTED = re.compile(r"[^ \t\n\f\r>]*")
_COMMENT_END = re.compile(r"--!?>")
_ENDS = {name: re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE) for name in _UNMARKED}
# Character references with so many digits that converting them would fail or be slow.
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{9,};?")


@dataclass(frozen=True, slots=True)
class Start:
    name: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class End:
    name: str


def tokens(page: str) -> Iterator[Start | End | str]:
    """The page's tags and texts in order, entities decoded, without comments and declarations."""
    at, size = 0, len(page)
    while at < size:
        opened = page.find("<", at)
        if opened < 0:
            yield unescaped(page[at:])
            return
        if opened > at:
            yield unescaped(page[at:opened])
        after = page[opened + 1 : opened + 2]
        if after.isascii() and after.isalpha():
            tag, at = _start(page, opened + 1)
            if tag is None:
                return
            yield tag
            if tag.name == "plaintext":
                yield page[at:]
                return
            if tag.name in _UNMARKED:
                end = _ENDS[tag.name].search(page, at)
                text = page[at : end.start() if end else size]
                yield text if tag.name in _RAW else unescaped(text)
                at = end.start() if end else size
        elif after == "/" and page[opened + 2 : opened + 3].isascii() and page[opened + 2 : opened + 3].isalpha():
            tag, at = _start(page, opened + 2)
            if tag is None:
                return
            yield End(tag.name)
        elif after in ("!", "?", "/"):
            at = _after_comment(page, opened)
        else:
            yield "<"
            at = opened + 1


def unescaped(text: str) -> str:
    if "&" not in text:
        return text
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text))


def _start(page: str, at: int) -> tuple[Start | None, int]:
    """The tag whose name begins at ``at``, and its end; None if the page ends before the tag."""
    match = _NAME.match(page, at)
    assert match is not None, "called at a letter"
    name, at, size = match[0].lower(), match.end(), len(page)
    attributes: dict[str, str] = {}
    while True:
        gap = _SPACE.match(page, at)
        at = gap.end() if gap else at
        if at >= size:
            return None, size
        if page[at] == ">":
            return Start(name, attributes), at + 1
        key = _ATTRIBUTE.match(page, at)
        assert key is not None, "the pattern matches nothing as well"
        at = key.end()
        value = ""
        if equals := _EQUALS.match(page, at):
            at = equals.end()
            quote = page[at : at + 1]
            if quote in ('"', "'") and quote:
                closed = page.find(quote, at + 1)
                if closed < 0:
                    return None, size
                value, at = page[at + 1 : closed], closed + 1
            elif plain := _UNQUOTED.match(page, at):
                value, at = plain[0], plain.end()
        if len(attributes) < MAX_ATTRIBUTES:
            attributes.setdefault(key[0].lower(), unescaped(value))


def _after_comment(page: str, opened: int) -> int:
    if not page.startswith("<!--", opened):
        closed = page.find(">", opened)
        return len(page) if closed < 0 else closed + 1
    if page.startswith((">", "->"), opened + 4):
        return page.index(">", opened + 4) + 1
    end = _COMMENT_END.search(page, opened + 4)
    return len(page) if end is None else end.end()
