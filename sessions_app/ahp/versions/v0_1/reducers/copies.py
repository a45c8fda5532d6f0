"""Changed copies of JSON objects and lists; the originals stay as they are.

Unchanged parts are shared, so a copy costs as much as the object has members of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Obj = dict[str, Any]


def changed(whole: Obj, /, **members: Any) -> Obj:
    """``whole`` with these members; None removes one, because the host writes no null (R36)."""
    copy = {**whole, **members}
    for name, value in members.items():
        if value is None:
            del copy[name]
    return copy


def picked(source: Obj, /, *names: str) -> Obj:
    """The named members that ``source`` has and that are not null."""
    return {name: source[name] for name in names if source.get(name) is not None}


def replaced(items: list[Any], index: int, item: Any) -> list[Any]:
    copy = list(items)
    copy[index] = item
    return copy


def found(items: list[Any] | None, matches: Callable[[Any], bool]) -> int | None:
    """The index of the first item that matches."""
    return next((index for index, item in enumerate(items or ()) if matches(item)), None)
