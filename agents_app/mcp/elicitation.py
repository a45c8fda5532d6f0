"""Converts an MCP server's elicitation to a form for users, and their answers back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agents_app.runtime.interface import FormAnswer
from agents_app.runtime.unicode import storable
from agents_app.tools import questions

if TYPE_CHECKING:
    import mcp_types

_FORMATS = ("email", "uri", "date", "date-time")
_LONGEST = 2_000


def form(params: mcp_types.ElicitRequestParams) -> dict[str, Any] | None:
    """The form, as ``questions.form`` makes them; None if a form cannot ask this.

    A form cannot send the user to an address of the server (mode ``url``).
    """
    if params.mode != "form":
        return None
    schema: Mapping[str, Any] = params.requested_schema
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or len(properties) > questions.MOST_QUESTIONS:
        return None
    needed = set(required) if isinstance(required, list) else set()
    asked = [_question(name, each, required=name in needed) for name, each in properties.items()]
    arguments = {"message": _words(params.message), "questions": [each for each in asked if each is not None]}
    if len(arguments["questions"]) != len(properties) or (properties and questions.fault(arguments) is not None):
        return None
    return questions.form(arguments)


def answer(given: FormAnswer) -> mcp_types.ElicitResult:
    from mcp_types import ElicitResult

    if given.response != "accept":
        return ElicitResult(action=given.response)
    return ElicitResult(action="accept", content=dict(given.values))


def _question(name: str, schema: Any, *, required: bool) -> dict[str, Any] | None:
    """The question for one property; None if a form cannot ask it."""
    if not isinstance(schema, dict) or not name:
        return None
    title, described = _words(schema.get("title")), _words(schema.get("description"))
    question: dict[str, Any] = {"id": name, "message": described or title or name, "required": required}
    if title and described:
        question["title"] = title
    more = _kind(schema)
    if more is None:
        return None
    return question | more


def _kind(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    match schema.get("type"):
        case "string":
            if (choices := _choices(schema)) is not None:
                return {"kind": "single-select", "options": _recommended(choices, [schema.get("default")])}
            wanted = {"format": schema["format"]} if schema.get("format") in _FORMATS else {}
            return {"kind": "text", **wanted, **_bounds(schema, "minLength", "maxLength"), **_default(schema, "text")}
        case "number" | "integer" as kind:
            return {"kind": kind, **_bounds(schema, "minimum", "maximum"), **_default(schema, kind)}
        case "boolean":
            return {"kind": "boolean", **_default(schema, "boolean")}
        case "array":
            items = schema.get("items")
            choices = _choices(items) if isinstance(items, dict) else None
            if choices is None:
                return None
            chosen = schema.get("default")
            options = _recommended(choices, chosen if isinstance(chosen, list) else [])
            return {"kind": "multi-select", "options": options, **_bounds(schema, "minItems", "maxItems")}
    return None


def _choices(schema: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The choices of a property, in any spelling of the protocol's versions."""
    for key in ("oneOf", "anyOf"):
        titled = schema.get(key)
        if isinstance(titled, list) and titled and all(_is_choice(each) for each in titled):
            return [{"id": each["const"], "label": _words(each.get("title")) or each["const"]} for each in titled]
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
        return None
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return [{"id": value, "label": _words(label) or value} for value, label in zip(values, labels, strict=True)]


def _is_choice(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("const"), str)


def _recommended(options: list[dict[str, Any]], defaults: list[Any]) -> list[dict[str, Any]]:
    # A select in a form has no default.
    return [{**option, "recommended": True} if option["id"] in defaults else option for option in options]


def _bounds(schema: Mapping[str, Any], least: str, most: str) -> dict[str, Any]:
    found = {"min": schema.get(least), "max": schema.get(most)}
    return {name: value for name, value in found.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def _default(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    value = schema.get("default")
    return {"defaultValue": value} if value is not None and questions.fits(kind, value) else {}


def _words(text: Any) -> str:
    return storable(text)[:_LONGEST] if isinstance(text, str) else ""
