"""Applies one action to one state: the rules that hold for the reducers of all channels (V530, V531)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed

Step = Callable[[Obj, Obj], Obj]
Steps = Mapping[str, Step]


def apply(steps: Steps, state: Any, action: Mapping[str, object]) -> Any:
    """The next state; the same object if the type is unknown, or if a member is missing or of another type."""
    members: Any = action
    try:
        step = steps.get(members["type"])
        return state if step is None else step(state, members)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        # Nothing has happened: steps build copies.
        return state


def clockless(step: Callable[[Obj, Obj, int], Obj]) -> Step:
    """A step of AHP 0.1 that does not use its time."""

    def without_time(state: Obj, action: Obj) -> Obj:
        return step(state, action, 0)

    return without_time


def assigned(name: str, member: str | None = None) -> Step:
    """A step that replaces a member of the state by the action's; null or absent removes it."""

    def step(state: Obj, action: Obj) -> Obj:
        return changed(state, **{name: action.get(member or name)})

    return step


def same(one: object, other: object) -> bool:
    """Equal as ids are compared: in type and value. To Python, True is 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def place(items: list[Any] | None, member: str, value: object) -> int | None:
    """The index of the first item with this id."""
    return next((index for index, item in enumerate(items or ()) if same(item.get(member), value)), None)


def put(items: list[Any] | None, member: str, item: Obj) -> list[Any]:
    """``items`` with this one in the place of the one with its id, or at the end."""
    held = list(items or ())
    index = place(held, member, item[member])
    if index is None:
        return [*held, item]
    held[index] = item
    return held
