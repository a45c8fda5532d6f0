"""JSON Schema and argument validation of Python functions."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agenthost.client.function_schema import ArgumentError, SchemaError, describe, docstring


class Colour(enum.Enum):
    RED = "red"
    GREY = "grey"


class Ship(BaseModel):
    name: str
    length: float = 10


def plain(name: str, count: int = 1, *, tags: list[str] | None = None, kind: Literal["a", "b"] = "a") -> str:
    """Does something plain.

    In two paragraphs.

    Args:
        name: what it is called,
            in full
        count (int): how often
    Returns:
        count: nothing of the sort
    """
    return f"{name} {count} {tags} {kind}"


def test_the_schema_follows_from_annotations_defaults_and_docstring() -> None:
    made = describe(plain)
    assert made.description == "Does something plain.\n\nIn two paragraphs."
    assert made.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "what it is called, in full"},
            "count": {"type": "integer", "default": 1, "description": "how often"},
            "tags": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}], "default": None},
            "kind": {"enum": ["a", "b"], "type": "string", "default": "a"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_missing_arguments_use_the_functions_defaults() -> None:
    made = describe(plain)
    assert made.checked({"name": "x"}) == {"name": "x"}
    assert made.call(made.checked({"name": "x", "count": "2"})) == "x 2 None a"


def rich(
    when: Annotated[dt.date, "the day"], colour: Colour, ship: Ship, far: Annotated[int, Field(ge=1, description="miles")]
) -> list[Any]:
    return [when, colour, ship, far]


def test_arguments_are_converted_to_the_annotated_types() -> None:
    made = describe(rich)
    given = made.checked({"when": "2026-05-04", "colour": "grey", "ship": {"name": "Ada"}, "far": 3})
    assert made.call(given) == [dt.date(2026, 5, 4), Colour.GREY, Ship(name="Ada"), 3]
    assert made.parameters["properties"]["far"] == {"type": "integer", "minimum": 1, "description": "miles"}
    assert made.parameters["properties"]["when"] == {"type": "string", "format": "date", "description": "the day"}
    assert made.parameters["$defs"].keys() == {"Colour", "Ship"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "name: Field required"),
        ({"name": "x", "count": "many"}, "count: Input should be a valid integer"),
        ({"name": "x", "other": 1}, "other: Extra inputs are not permitted"),
        ({"name": "x", "kind": "c"}, "kind: Input should be 'a' or 'b'"),
    ],
)
def test_invalid_arguments_are_reported_to_the_model(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as told:
        describe(plain).checked(arguments)
    assert words in str(told.value)


def test_parameter_names_that_pydantic_reserves_are_accepted() -> None:
    def awkward(json: str, copy: int, _under: bool, model_config: str = "") -> str:
        return f"{json} {copy} {_under} {model_config}"

    made = describe(awkward)
    assert list(made.parameters["properties"]) == ["json", "copy", "_under", "model_config"]
    assert made.call(made.checked({"json": "{}", "copy": 2, "_under": True})) == "{} 2 True "


def test_unknown_arguments_are_passed_to_var_keyword() -> None:
    def open_ended(first: int, **others: Any) -> dict[str, Any]:
        return {"first": first, **others}

    made = describe(open_ended)
    assert "additionalProperties" not in made.parameters
    assert made.call(made.checked({"first": 1, "second": [2]})) == {"first": 1, "second": [2]}


def positional(name: str, /) -> None: ...


def many(*names: str) -> None: ...


def unknown(name: NotDefinedAnywhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Opaque:
    pass


def opaque(thing: Opaque) -> None: ...


@pytest.mark.parametrize("function", [positional, many, unknown, opaque])
def test_functions_with_unsupported_signatures_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(SchemaError):
        describe(function)


def test_a_docstring_without_sections_is_all_description() -> None:
    assert docstring("One line: with a colon.\n\nNote that this is text.") == (
        "One line: with a colon.\n\nNote that this is text.",
        {},
    )
    assert docstring("") == ("", {})
