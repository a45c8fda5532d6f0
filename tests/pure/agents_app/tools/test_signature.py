"""Schemas made from signatures and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional

import pytest

from agents_app.tools.signature import NoSchema, describe


def everything(  # type: ignore[no-untyped-def]
    query: str,
    limit: int,
    ratio: float,
    exact: bool,
    tags: list[str],
    rest: list,  # type: ignore[type-arg]
    extra: dict[str, int],
    loose: dict,  # type: ignore[type-arg]
    kind: Literal["a", "b"],
    maybe: Optional[int],  # noqa: UP045 - the older spelling has to work
    either: str | list[int],
    seen: Annotated[Sequence[int], "Numbers seen."],
    free: Any,
    untyped,
    mixed: Literal[1, None] = None,
    page: int = 1,
    unset: str | None = None,
    listed: Mapping[str, Any] = {},
) -> str:
    """Searches far and wide.

    Also in the attic.

    Args:
        query (str): What to look for,
            in plain words.
        limit: At most so many: no more.
        not_there: ignored

    Returns:
        limit: a decoy
    """
    return query


def test_types_defaults_and_descriptions_become_a_schema() -> None:
    description, schema = describe(everything)
    assert description == "Searches far and wide.\n\nAlso in the attic."
    assert schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in plain words."},
            "limit": {"type": "integer", "description": "At most so many: no more."},
            "ratio": {"type": "number"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "rest": {"type": "array"},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
            "loose": {"type": "object"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
            "seen": {"type": "array", "items": {"type": "integer"}, "description": "Numbers seen."},
            "free": {},
            "untyped": {},
            "mixed": {"enum": [1, None], "default": None},
            "page": {"type": "integer", "default": 1},
            "unset": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "listed": {"type": "object"},
        },
        "required": [
            "query", "limit", "ratio", "exact", "tags", "rest", "extra", "loose", "kind", "maybe", "either", "seen", "free",
            "untyped",
        ],
        "additionalProperties": False,
    }  # fmt: skip


def test_a_function_without_docstring_or_parameters_is_fine() -> None:
    def bare() -> None: ...

    assert describe(bare) == ("", {"type": "object", "properties": {}, "additionalProperties": False})


def test_open_keyword_arguments_allow_others() -> None:
    def open_ended(**others: str) -> None: ...

    assert describe(open_ended)[1] == {"type": "object", "properties": {}}


def test_an_object_that_is_called_is_read_by_its_call() -> None:
    class Greeter:
        """Greets."""

        def __call__(self, name: str) -> str:
            return name

    description, schema = describe(Greeter())
    assert description == "Greets."
    assert schema["properties"] == {"name": {"type": "string"}}


def _positional(a: int, /) -> None: ...
def _many(*a: int) -> None: ...
def _bytes(a: bytes) -> None: ...
def _keys(a: dict[int, str]) -> None: ...
def _unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize("function", [_positional, _many, _bytes, _keys, _unknown])
def test_what_no_model_could_fill_is_refused(function: Callable[..., None]) -> None:
    with pytest.raises(NoSchema):
        describe(function)
