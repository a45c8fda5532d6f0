"""JSON Schema made from declarations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.json_schema import Components
from sessions_app.core.base.shapes import As, JSONText, Named, Rule, Shape


class Circle(TypedDict):
    """A round thing,
    on two lines."""

    kind: Literal["circle"]
    radius: Annotated[int, "In pixels.", Rule(lambda radius: None if radius > 0 else "must be positive", minimum=1)]


class Group(TypedDict):
    kind: Literal["group"]
    parts: NotRequired[list[Figure]]
    about: NotRequired[_About]


class _About(TypedDict):
    free: dict[str, Any]
    words: NotRequired[dict[str, str]]
    size: NotRequired[Literal["small", "large"]]


Figure = Annotated[Circle | Group, Named("Figure"), "A circle or a group."]


def test_objects_and_named_shapes_are_components_and_private_ones_are_inline() -> None:
    components = Components()
    assert components.schema(Figure) == {"$ref": "#/components/schemas/Figure"}
    assert components.schemas == {
        "Figure": {
            "description": "A circle or a group.",
            "oneOf": [{"$ref": "#/components/schemas/Circle"}, {"$ref": "#/components/schemas/Group"}],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {"circle": "#/components/schemas/Circle", "group": "#/components/schemas/Group"},
            },
        },
        "Circle": {
            "description": "A round thing, on two lines.",
            "type": "object",
            "required": ["kind", "radius"],
            "properties": {
                "kind": {"const": "circle"},
                "radius": {"description": "In pixels.", "type": "integer", "minimum": 1},
            },
        },
        "Group": {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {"const": "group"},
                "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Figure"}},
                "about": {
                    "type": "object",
                    "required": ["free"],
                    "properties": {
                        "free": {"type": "object", "additionalProperties": True},
                        "words": {"type": "object", "additionalProperties": {"type": "string"}},
                        "size": {"type": "string", "enum": ["small", "large"]},
                    },
                },
            },
        },
    }


def test_the_last_description_counts() -> None:
    assert Components().schema(Annotated[Annotated[str, "Any text."], "A title."]) == {
        "description": "A title.",
        "type": "string",
    }


def test_a_value_may_be_described_as_another_type_or_as_json_in_a_string() -> None:
    assert Components().schema(Annotated[list[str], As(str | bool)]) == {"oneOf": [{"type": "string"}, {"type": "boolean"}]}
    assert Components().schema(Annotated[str, JSONText(int)]) == {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"type": "integer"},
    }


def circle_of_another_version() -> Any:
    class Circle(TypedDict):
        kind: Literal["circle"]
        diameter: int

    return Circle


def test_a_version_replaces_types_wherever_they_are_used() -> None:
    components = Components({Circle: circle_of_another_version()})
    components.schema(Figure)
    assert components.schemas["Circle"]["required"] == ["kind", "diameter"]


def test_two_shapes_of_one_name_are_an_error() -> None:
    components = Components()
    components.schema(Annotated[str, Named("Word")])
    components.schema(Annotated[str, Named("Word")])
    with pytest.raises(TypeError, match="two shapes have the name Word"):
        components.schema(Annotated[int, Named("Word")])


@given(
    st.recursive(
        st.fixed_dictionaries({}, optional={"kind": st.sampled_from(["circle", "group", "x"]), "radius": st.integers(-1, 2)}),
        lambda inner: st.fixed_dictionaries({"kind": st.just("group")}, optional={"parts": st.lists(inner, max_size=3)}),
    )
)
def test_a_reader_and_its_schema_take_the_same_values(value: object) -> None:
    components = Components()
    schema = {**components.schema(Figure), "components": {"schemas": components.schemas}}
    try:
        Shape[Any](Figure).read(value)
    except InvalidInput:
        fits = False
    else:
        fits = True
    assert Draft202012Validator(schema).is_valid(value) is fits
