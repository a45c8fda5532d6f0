"""JSON that comes back as it went in: order of keys, big integers, ``1.0`` and long decimals survive.

The standard library's codec, made strict (no NaN, no Infinity) and compact. orjson is faster but rounds
integers beyond 64 bits, so it is used only where no client's numbers pass.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from decimal import Decimal
from typing import Any, NoReturn


class NotJSON(ValueError):
    """The text is not strict JSON."""


class LongNumber:
    """A decimal that no float holds exactly, kept as the text it was written in."""

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


def _number(text: str) -> float | LongNumber:
    value = float(text)
    if len(text) > 15 or "e" in text or "E" in text:
        # A huge exponent is not worked out; what overflows or differs stays text.
        if math.isinf(value) or (value == 0.0 and any(digit in "123456789" for digit in re.split("[eE]", text)[0])):
            return LongNumber(text)
        if Decimal(text) != Decimal(repr(value)):
            return LongNumber(text)
    return value


# Made once: the module's own functions make a codec at each call, which takes longer than most of our texts.
_EXACT = json.JSONDecoder(parse_float=_number, parse_constant=_refuse_constant)
_PLAIN = json.JSONDecoder(parse_float=float, parse_constant=_refuse_constant)


def loads(text: str | bytes) -> Any:
    """Parse strict JSON; ``NotJSON`` for anything else, nesting too deep for the parser included."""
    return _loads(text, _EXACT)


def loads_plain(text: str | bytes) -> Any:
    """The same with every decimal as a float: for code that calculates with it, not for keeping it."""
    return _loads(text, _PLAIN)


def _loads(text: str | bytes, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
    except NotJSON:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJSON("not JSON") from error


class _NeedsPlace(Exception):
    """There is a number in it that the fast encoder cannot write."""


def _needs_place(item: Any) -> NoReturn:
    if isinstance(item, LongNumber):
        raise _NeedsPlace
    raise TypeError(f"{type(item).__name__} is no JSON value")


_FORM: Any = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
_ENCODER = json.JSONEncoder(**_FORM, default=_needs_place)


def dumps(value: Any) -> str:
    """One line of JSON, compact, text unescaped, keys in their own order."""
    try:
        return _ENCODER.encode(value)
    except _NeedsPlace:
        return _dumps_with_places(value)


def _dumps_with_places(value: Any) -> str:
    """A place is held for each number that the encoder cannot write."""
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


def deeper_than(levels: int, value: Any) -> bool:
    """Whether lists and objects stand in each other more than ``levels`` deep. Not by recursion, which ends first."""
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
