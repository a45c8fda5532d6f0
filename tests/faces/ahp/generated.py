"""Generated values for shapes: valid ones, and nearly valid ones.

``fitting(declared)`` draws values that a strict reading accepts; ids come from small pools, so that actions meet what they name.
``spoiled(declared)`` draws such a value with a few members changed into something else, left out or added.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

from hypothesis import strategies as st

from sessions_app.core.base.shapes import is_number, members, variants

_TEXT = st.sampled_from(["", "a", "two words", "größer", "\N{GRINNING FACE}"])
_IDS = st.sampled_from(["1", "2", "3"])
_WHOLE = st.integers(-3, 1000)

_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["id", "turnId", "toolCallId", "partId", "requestId", "questionId", "uri", "commandId"], _IDS),
    **dict.fromkeys(["queuedMessageId", "selectedOptionId", "clientId"], _IDS),
    "order": st.lists(_IDS, max_size=4),
    "status": st.sampled_from([1, 2, 8, 24, 33, 34, 72, 120]),
}
"""Values for members with these names, more special than their declared types."""

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _WHOLE | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


@cache
def fitting(declared: Any) -> st.SearchStrategy[Any]:
    if declared is Any:
        return JSON.filter(lambda value: value is not None)
    if get_origin(declared) is Annotated:
        return st.sampled_from(["a", "client"])
    if declared is str:
        return _TEXT
    if declared is bool:
        return st.booleans()
    if declared is int:
        return _WHOLE
    if is_number(declared):
        return _WHOLE | st.sampled_from([0.5, -2.25])
    if declared is None or declared is type(None):
        return st.none()
    if is_typeddict(declared):
        # Deferred: a declaration may contain itself.
        return st.deferred(lambda: _object(declared))
    if get_origin(declared) is Literal:
        return st.sampled_from(get_args(declared))
    if get_origin(declared) is list:
        return st.lists(fitting(get_args(declared)[0]), max_size=2)
    if get_origin(declared) is dict:
        return st.dictionaries(_IDS, fitting(get_args(declared)[1]), max_size=2)
    return st.one_of(*map(fitting, variants(declared)))


@cache
def _object(declared: Any) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, member in members(declared).items():
        drawn = fitting(member.declared)
        if name in _BY_NAME and (member.declared in (str, int) or name == "order"):
            drawn = _BY_NAME[name]
        (required if member.required else optional)[name] = drawn
    return st.fixed_dictionaries(required, optional=optional)


@st.composite
def spoiled(draw: st.DrawFn, declared: Any) -> Any:
    value = copy.deepcopy(draw(fitting(declared)))
    for _ in range(draw(st.integers(1, 3))):
        holders = list(_containers(value))
        if not holders:
            return draw(JSON)
        holder = draw(st.sampled_from(holders))
        place = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        how = draw(st.sampled_from(["other", "null", "gone", "more"]))
        if how == "gone":
            del holder[place]
        elif how == "more" and isinstance(holder, dict):
            holder["unheard-of"] = draw(JSON)
        else:
            holder[place] = None if how == "null" else draw(JSON)
    return value


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)
