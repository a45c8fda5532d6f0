"""Pages of lists by keyset: each page begins behind a row, so no list is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.http import HttpRequest

A_PAGE = 50
BEFORE = "before"
"""The parameter with the position of the last row of the page before."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listed(Generic[R]):
    """The rows of a page. ``next``, ``first``: query strings; ``next`` is empty on the last page."""

    rows: Sequence[R]
    next: str
    first: str
    is_first: bool


def page(request: HttpRequest, read: Callable[[int | None, int], Sequence[R]], position: Callable[[R], int]) -> Listed[R]:
    """``read(before, most)``: the rows behind a position. ``position``: of a row."""
    before = number(request.GET.get(BEFORE))
    rows = read(before, A_PAGE + 1)
    others = request.GET.copy()
    others.pop(BEFORE, None)
    first = f"?{others.urlencode()}"
    following = ""
    if len(rows) > A_PAGE:
        others[BEFORE] = str(position(rows[A_PAGE - 1]))
        following = f"?{others.urlencode()}"
    return Listed(rows[:A_PAGE], following, first, before is None)


def number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
