"""Markdown inside a line: emphasis, code, links. No I/O.

Text is passed on as soon as its form is certain. From a mark that may begin a form, text is held until the form's end has
come, the line ends, or more than ``MOST_HELD`` characters have come; then the mark is a character like any other. So the
result does not depend on how the text was cut into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agenthost.chat.wrapping import Run, joined

BOLD, DIM, ITALIC, UNDERLINED, STRUCK, CODE = "1", "2", "3", "4", "9", "36"
MOST_HELD = 800

_MARKS = re.compile(r"[\\`*_~\[!]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_STYLES = {"*": (ITALIC, BOLD, f"{BOLD};{ITALIC}"), "_": (ITALIC, BOLD, f"{BOLD};{ITALIC}"), "~": ("", STRUCK, "")}
# Code and escaped characters, in which a mark closes nothing, and runs of the mark.
_CLOSERS = {mark: re.compile(rf"\\.|(`+)(?:(?!\1).)*?\1|(?P<run>{re.escape(mark)}+)") for mark in "*_~"}
_BACKTICKS = re.compile("`+")
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]")
_TARGET = re.compile(r"\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")


class Inline:
    """Takes the text of one line in pieces and passes on runs of one style."""

    def __init__(self, emit: Callable[[Run], None], style: str = "") -> None:
        self._emit, self._style = emit, style
        self._held = ""
        self._before = " "

    def feed(self, text: str) -> None:
        self._held += text
        self._held = self._held[self._scan(self._held, self._style, is_whole=False) :]

    def finish(self) -> None:
        """The line is over: what is held has no end."""
        held, self._held = self._held, ""
        self._scan(held, self._style, is_whole=True)
        self._before = " "

    def _out(self, text: str, style: str) -> None:
        if text:
            self._before = text[-1]
            self._emit(Run(text, style))

    def _scan(self, text: str, style: str, *, is_whole: bool) -> int:
        """Pass on the forms of the text; returns the position from which text has to be held."""
        at = 0
        while at < len(text):
            mark = _MARKS.search(text, at)
            if mark is None:
                self._out(text[at:], style)
                return len(text)
            self._out(text[at : mark.start()], style)
            at = mark.start()
            end = self._form(text, at, style, is_whole=is_whole)
            if end is None:
                return at
            at = end
        return len(text)

    def _form(self, text: str, at: int, style: str, *, is_whole: bool) -> int | None:
        """Pass on the form that begins here, or its mark as text; returns the position after it. None: it is not certain yet."""
        is_last = is_whole or len(text) - at > MOST_HELD
        match text[at]:
            case "\\":
                if at + 1 == len(text) and not is_whole:
                    return None
                if at + 1 < len(text) and text[at + 1] in _PUNCTUATION:
                    self._out(text[at + 1], style)
                    return at + 2
            case "`":
                return self._code(text, at, style, is_last=is_last, is_whole=is_whole)
            case "[":
                return self._link(text, at, style, is_last=is_last)
            case "!":
                if at + 1 == len(text) and not is_whole:
                    return None
                if text.startswith("[", at + 1):
                    return self._link(text, at, style, is_last=is_last)
            case _:
                return self._emphasis(text, at, style, is_last=is_last, is_whole=is_whole)
        self._out(text[at], style)
        return at + 1

    def _code(self, text: str, at: int, style: str, *, is_last: bool, is_whole: bool) -> int | None:
        run = _run(text, at)
        if at + run == len(text) and not is_whole:
            return None
        for closer in _BACKTICKS.finditer(text, at + run, at + MOST_HELD):
            if closer.end() == len(text) and not is_whole:
                return None
            if len(closer[0]) == run:
                code = text[at + run : closer.start()]
                if code.strip() and code[0] == code[-1] == " ":
                    code = code[1:-1]
                self._out(code, joined(style, CODE))
                return closer.end()
        if not is_last:
            return None
        self._out(text[at : at + run], style)
        return at + run

    def _emphasis(self, text: str, at: int, style: str, *, is_last: bool, is_whole: bool) -> int | None:
        mark, run = text[at], _run(text, at)
        after = at + run
        if after == len(text) and not is_whole:
            return None
        opens = run <= 3 and after < len(text) and not text[after].isspace() and _STYLES[mark][run - 1]
        before = text[at - 1] if at else self._before
        if not opens or (mark == "_" and before.isalnum()):
            self._out(text[at:after], style)
            return after
        for closer in _CLOSERS[mark].finditer(text, after, min(len(text), at + MOST_HELD)):
            length = len(closer["run"] or "")
            if not length:
                continue
            if closer.end() == len(text) and not is_whole:
                return None
            follows_blank = text[closer.start() - 1].isspace()
            in_word = mark == "_" and closer.end() < len(text) and text[closer.end()].isalnum()
            if length < run or length not in (run, 3) or follows_blank or in_word:
                continue
            self._scan(text[after : closer.end() - run], joined(style, _STYLES[mark][run - 1]), is_whole=True)
            return closer.end()
        if not is_last:
            return None
        self._out(text[at:after], style)
        return after

    def _link(self, text: str, at: int, style: str, *, is_last: bool) -> int | None:
        """A link is its text and its address: what cannot be seen cannot be trusted."""
        is_image = text[at] == "!"
        start = at + is_image
        most = min(len(text), at + MOST_HELD)
        label = _LABEL.match(text, start, most)
        if label is None or label.end() == len(text):
            if not is_last:
                return None
        elif text[label.end()] == "(":
            target = _TARGET.match(text, label.end(), most)
            if target is not None:
                self._show_link(label[1], target[1], style, is_image=is_image)
                return target.end()
            if not is_last and ")" not in text[label.end() : most]:
                return None
        self._out(text[at : start + 1], style)
        return start + 1

    def _show_link(self, label: str, address: str, style: str, *, is_image: bool) -> None:
        if is_image:
            self._out(f"[image: {label}]" if label else "[image]", style)
        elif label in ("", address, address.removeprefix("mailto:")):
            self._out(address, joined(style, UNDERLINED))
            return
        else:
            self._scan(label, joined(style, UNDERLINED), is_whole=True)
        if address:
            self._out(f" ({address})", joined(style, DIM))


def _run(text: str, at: int) -> int:
    """The length of the run of one character that begins here."""
    part = text[at : at + MOST_HELD]
    return len(part) - len(part.lstrip(text[at]))


def runs_of(text: str, style: str = "") -> list[Run]:
    """The runs of a complete line."""
    found: list[Run] = []
    inline = Inline(found.append, style)
    inline.feed(text)
    inline.finish()
    return found
