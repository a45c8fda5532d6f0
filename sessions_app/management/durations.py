"""Parses durations such as 90m, 12h, 30d and 2w."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta

_FORM = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """A duration from a number and a unit, as an argparse type (raises ArgumentTypeError)."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a duration; use a number and one of s, m, h, d, w, such as 12h or 30d")
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if length > _LONGEST:
        raise ArgumentTypeError(f"{text!r} is too long; the limit is 100 years")
    return length
