"""Lossless JSON codec: key order, big integers, ``1.0`` and long decimals survive a round trip.

It is the standard library's codec, made strict (no NaN, no Infinity) and compact. orjson is faster but rounds
integers beyond 64 bits, so it is used only for data without numbers from clients.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import sys
from collections.abc import Mapping
from decimal import Decimal
from itertools import accumulate
from typing import Any, Literal, NoReturn

import orjson


class NotJSON(ValueError):
    """The text is not strict JSON."""


class LongNumber:
    """A decimal that no float represents exactly, kept as its text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LongNumber) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


def _refuse_constant(name: str) -> NoReturn:
    raise NotJSON(f"{name} is not JSON")


_LONGEST_FLOAT = len(repr(-sys.float_info.max))
"""Characters. Longer text is not compared with its float's text, which takes time."""


def _number(text: str) -> float | LongNumber:
    if len(text) > _LONGEST_FLOAT:
        return LongNumber(text)
    value = float(text)
    if len(text) > 15 or "e" in text or "E" in text:
        # A huge exponent is not evaluated; a number that overflows or differs stays text.
        if math.isinf(value) or (value == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", text)[0])):
            return LongNumber(text)
        if Decimal(text) != Decimal(repr(value)):
            return LongNumber(text)
    return value


# Created once: the module's own functions create a codec for each call, which takes longer than most texts.
_EXACT = json.JSONDecoder(parse_float=_number, parse_constant=_refuse_constant)
_PLAIN = json.JSONDecoder(parse_float=float, parse_constant=_refuse_constant)


def loads(text: str | bytes) -> Any:
    """Parse strict JSON; ``NotJSON`` for anything else, including nesting too deep for the parser."""
    return _loads(text, _EXACT)


def loads_plain(text: str | bytes) -> Any:
    """``loads`` with every decimal as a float: for code that calculates with the value, not for storing it."""
    return _loads(text, _PLAIN)


def _loads(text: str | bytes, decoder: json.JSONDecoder) -> Any:
    if text[:1] in ('"', b'"'):
        # Most messages of a conversation are one text, which a run reads again at each turn. It has no number that could change.
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            # For example half of a surrogate pair, which is an error only for this parser.
            pass
    try:
        return decoder.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
    except NotJSON:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJSON("not JSON") from error


class _NeedsPlaceholder(Exception):
    """The value has a number that the fast encoder cannot write."""


def _needs_placeholder(item: Any) -> NoReturn:
    if isinstance(item, LongNumber):
        raise _NeedsPlaceholder
    raise TypeError(f"{type(item).__name__} is no JSON value")


_FORM: Any = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
_ENCODER = json.JSONEncoder(**_FORM, default=_needs_placeholder)


def dumps(value: Any) -> str:
    """Compact JSON in one line; text is not escaped, keys keep their order."""
    try:
        return _ENCODER.encode(value)
    except _NeedsPlaceholder:
        return _dumps_with_placeholders(value)


_MANY = 50
"""The items of a longer list are encoded one by one."""


def dumps_in_pieces(value: Mapping[str, Any]) -> str:
    """``dumps(value)`` in many short calls of the encoder, which holds the interpreter's lock during each call.

    For long values in a thread: encoding 10 MB in one call would stop the event loop for some 100 ms.
    """
    return "{" + ",".join(f"{dumps(name)}:{_piece(each)}" for name, each in value.items()) + "}"


def _piece(value: Any) -> str:
    if isinstance(value, list) and len(value) > _MANY:
        return "[" + ",".join(map(_piece, value)) + "]"
    if isinstance(value, dict) and any(isinstance(each, list) and len(each) > _MANY for each in value.values()):
        return dumps_in_pieces(value)
    return dumps(value)


def _dumps_with_placeholders(value: Any) -> str:
    """``dumps`` with a placeholder for each number that the encoder cannot write."""
    long: list[str] = []
    mark = secrets.token_hex(16)

    def written_later(item: Any) -> str:
        if not isinstance(item, LongNumber):
            raise TypeError(f"{type(item).__name__} is no JSON value")
        long.append(item.text)
        return mark

    text = json.dumps(value, **_FORM, default=written_later)
    texts = iter(long)
    return re.sub(f'"{mark}"', lambda _: next(texts), text)


# --- size limits, checked before parsing ---

MAX_MEMBERS = 150_000
"""Limit of members in all lists and objects of a client's request: 15 for each of 10,000 messages."""

Excess = Literal["members", "levels", "unclosed"]

_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'"[]{},'))
_STEPS = bytes(1 if mark in b"[{" else 255 if mark in b"]}" else 0 for mark in range(256))
"""Translates brackets to signed bytes: +1 for an opening one, -1 for a closing one."""


def excess(text: str | bytes, *, members: int, levels: int) -> Excess | None:
    """The limit that a JSON text exceeds, found without parsing; None if it exceeds none.

    ``members`` counts the members of all lists and objects, an empty one as one more; ``levels`` is the nesting depth.
    ``unclosed``: a limit is exceeded and the brackets do not match, so the text is not JSON. The count is never too low for
    the part of a text before its first syntax error, where a parser stops.
    """
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    openings = data.count(b"[") + data.count(b"{")
    # An upper bound, because brackets and commas in strings count too. This bound is enough for nearly all texts.
    if openings <= levels and openings + data.count(b",") <= members:
        return None
    if b"\\" in data:
        # Pairs first: in an odd run of backslashes only the last one escapes a quote.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = data.translate(None, _ALL_BUT_MARKS)
    # Each string has two quotes, and is a member or a member's name.
    if marks.count(b'"') > 4 * members + 4:
        return "members"
    outside = b"".join(marks.split(b'"')[::2])
    lists, objects = outside.count(b"["), outside.count(b"{")
    found: Excess | None = None
    if lists + objects + outside.count(b",") > members:
        found = "members"
    elif lists + objects > levels:
        brackets = outside.translate(_STEPS, b",")
        found = "levels" if max(accumulate(memoryview(brackets).cast("b"))) > levels else None
    if found is not None and (lists, objects) != (outside.count(b"]"), outside.count(b"}")):
        return "unclosed"
    return found


_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def place_of_level(text: str, level: int) -> tuple[str | int, ...]:
    """The path to the first list or object at this depth; empty if the text before it is not JSON.

    Works for text that is nested deeper than the parser can follow.
    """
    closings: list[str] = []
    for found in _STRING_OR_BRACKET.finditer(text):
        mark = found.group()
        if mark in ("]", "}"):
            if not closings or closings.pop() != mark:
                return ()
        elif mark in ("[", "{"):
            closings.append("]" if mark == "[" else "}")
            if len(closings) == level:
                # The text before it, with its brackets closed, can be parsed; the path follows its last members.
                start = f"{text[: found.start()]}0{''.join(reversed(closings[:-1]))}"
                return _path_to_the_last(start)
    return ()


def _path_to_the_last(text: str) -> tuple[str | int, ...]:
    try:
        value = loads(text)
    except NotJSON:
        return ()
    path: list[str | int] = []
    while value and isinstance(value, dict | list):
        # A repeated name keeps its first position; the path then ends early.
        step = next(reversed(value)) if isinstance(value, dict) else len(value) - 1
        path.append(step)
        value = value[step]
    return tuple(path)


def deeper_than(levels: int, value: Any) -> bool:
    """Whether lists and objects are nested more than ``levels`` deep. Iterative, because recursion has a lower limit."""
    level = [value]
    for _ in range(levels):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
