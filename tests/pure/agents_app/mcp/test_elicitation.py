"""What MCP servers ask for, as forms."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from mcp_types import ElicitRequestFormParams

from agents_app.mcp import elicitation
from agents_app.runtime.interface import FormAnswer


def question(schema: Any, *, required: bool = False) -> dict[str, Any] | None:
    wanted = {"type": "object", "properties": {"it": schema}, "required": ["it"] if required else []}
    form = elicitation.form(ElicitRequestFormParams(message="Please", requested_schema=wanted))
    if form is None:
        return None
    assert form["message"] == "Please"
    (found,) = form["questions"]
    assert found.pop("id") == "it"
    assert found.pop("required") is required
    return dict(found)


CHOICES = [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, {"kind": "text", "message": "it"}),
        ({"type": "string", "title": "It"}, {"kind": "text", "message": "It"}),
        (
            {
                "type": "string",
                "title": "It",
                "description": "Say it",
                "format": "email",
                "minLength": 3,
                "maxLength": 9,
                "default": "a@b",
            },
            {"kind": "text", "title": "It", "message": "Say it", "format": "email", "min": 3, "max": 9, "defaultValue": "a@b"},
        ),
        ({"type": "string", "format": "hostname"}, {"kind": "text", "message": "it"}),
        ({"type": "number", "minimum": 0.5, "default": 1}, {"kind": "number", "message": "it", "min": 0.5, "defaultValue": 1}),
        ({"type": "integer", "maximum": 3, "default": "no"}, {"kind": "integer", "message": "it", "max": 3}),
        ({"type": "boolean", "default": True}, {"kind": "boolean", "message": "it", "defaultValue": True}),
        (
            {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
            {"kind": "single-select", "message": "it", "options": CHOICES},
        ),
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}], "default": "b"},
            {"kind": "single-select", "message": "it", "options": [CHOICES[0], {**CHOICES[1], "recommended": True}]},
        ),
        (
            {
                "type": "array",
                "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
                "minItems": 1,
                "maxItems": 2,
            },
            {"kind": "multi-select", "message": "it", "options": CHOICES, "min": 1, "max": 2},
        ),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a"]},
            {"kind": "multi-select", "message": "it", "options": [{"id": "a", "label": "a", "recommended": True}]},
        ),
    ],
)
def test_each_kind_of_property_becomes_its_kind_of_question(schema: dict[str, Any], shown: dict[str, Any]) -> None:
    assert question(schema) == shown
    assert question(schema, required=True) == shown


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array"},
        {"type": "strange"},
        {"type": "string", "enum": [1, 2]} | {"type": "null"},
        "text",
        {},
    ],
)
def test_what_no_form_can_ask_is_not_asked(schema: Any) -> None:
    assert question(schema) is None


def test_a_question_without_properties_is_a_form_to_accept() -> None:
    params = ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
    assert elicitation.form(params) == {"message": "Sure?", "questions": []}


def test_a_form_of_too_many_questions_is_not_asked() -> None:
    many = {f"q{number}": {"type": "string"} for number in range(50)}
    params = ElicitRequestFormParams(message="", requested_schema={"type": "object", "properties": many})
    assert elicitation.form(params) is None


def test_only_what_was_accepted_has_values() -> None:
    assert elicitation.answer(FormAnswer("accept", {"it": ["a"]})).content == {"it": ["a"]}
    responses: tuple[Literal["decline", "cancel"], ...] = ("decline", "cancel")
    for response in responses:
        given = elicitation.answer(FormAnswer(response, {"it": 1}))
        assert (given.action, given.content) == (response, None)
