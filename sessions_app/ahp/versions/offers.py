"""The versions that a client offers, as numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = "(0|[1-9][0-9]*)"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_LONGEST = 64

Numbers = tuple[int, int, int]


def numbers(version: str) -> Numbers | None:
    """None for a malformed version."""
    found = _VERSION.fullmatch(version) if len(version) <= _LONGEST else None
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def malformed(offered: Sequence[str]) -> str | None:
    """The first malformed entry, if it makes the request invalid: one of a client that speaks only 0.1 is skipped."""
    found = [numbers(entry) for entry in offered]
    if None not in found:
        return None
    families = {version[:2] if version[0] == 0 else version[:1] for version in found if version is not None}
    return None if (0, 1) in families and not families & {(0, 9), (1,)} else offered[found.index(None)]


def highest(offered: Sequence[str], first: Numbers, end: Numbers) -> str | None:
    """The highest version from ``first`` to before ``end``, as it was offered; None if there is none."""
    inside = {entry: version for entry in offered if (version := numbers(entry)) is not None and first <= version < end}
    return max(inside, key=inside.__getitem__) if inside else None
