"""What the endpoints of the management API read from addresses and queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, TypeVar

from django.http import QueryDict
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from sessions_app.aap.body import read_object
from sessions_app.aap.views import caller_of
from sessions_app.core.base.content import Faults
from sessions_app.core.base.shapes import Shape, members
from sessions_app.core.tenancy import quotas

T = TypeVar("T")

PAGE = 50
"""Rows of a page."""
_LONGEST = 200


def body(request: Request, shape: Shape[Any], declared: Any, *, required: bool = True) -> Any:
    """The body of a request, checked."""
    found = read_object(request, most=quotas.largest_request(caller_of(request)), required=required)
    faults = Faults()
    wanted = faults.take(shape.read, found)
    faults.settle(members(declared))
    return wanted


def number(text: str) -> int | None:
    """A row number; None for a text that cannot be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def before(query: QueryDict) -> int | None:
    """Where a list continues; None: it begins."""
    text = query.get("before")
    found = None if text is None else number(text)
    if text is not None and found is None:
        raise ParseError("The query `before` must be the value of `next` in an earlier answer.")
    return found


def paged(name: str, rows: Sequence[T], shown: Callable[[T], Any], number_of: Callable[[T], int]) -> dict[str, Any]:
    """One page of at most ``PAGE`` of these rows, which may be one more, with ``next`` if they are."""
    page: dict[str, Any] = {name: [shown(row) for row in rows[:PAGE]]}
    if len(rows) > PAGE:
        page["next"] = str(number_of(rows[PAGE - 1]))
    return page


def text(query: QueryDict, name: str) -> str:
    found = query.get(name, "").strip()
    if len(found) > _LONGEST or "\0" in found:
        raise ParseError(f"The query `{name}` has at most {_LONGEST} characters, without U+0000.")
    return found


def choice(query: QueryDict, name: str, choices: Sequence[str]) -> str:
    """One of these, or empty if the query is not there."""
    found = query.get(name, "")
    if found and found not in choices:
        raise ParseError(f"The query `{name}` must be one of {', '.join(choices)}.")
    return found


def flag(query: QueryDict, name: str) -> bool:
    return choice(query, name, ("true", "false")) == "true"


def day(query: QueryDict, name: str) -> date | None:
    found = query.get(name)
    if not found:
        return None
    try:
        return date.fromisoformat(found)
    except ValueError:
        raise ParseError(f"The query `{name}` must be a day such as 2026-11-30.") from None
