"""Checks a model's arguments against the basics of a tool's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app.errors import ToolFailed

_KINDS: dict[str, str] = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def checked(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the function; ``ToolFailed`` names the first invalid one.

    A number such as ``3.0`` counts as an integer, because models write so.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in given:
            raise ToolFailed(f"the argument {name} is missing")
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name in properties:
            out[name] = _fit(value, properties[name], f"the argument {name}")
        elif schema.get("additionalProperties", True) is False:
            raise ToolFailed("there is an argument the tool does not have")
        else:
            out[name] = value
    return out


def _fit(value: Any, schema: Mapping[str, Any], place: str) -> Any:
    if "anyOf" in schema:
        for alternative in schema["anyOf"]:
            try:
                return _fit(value, alternative, place)
            except ToolFailed:
                continue
        raise ToolFailed(f"{place} has the wrong type")
    if "enum" in schema:
        # True == 1 in Python, not in JSON.
        if not any(type(value) is type(choice) and value == choice for choice in schema["enum"]):
            raise ToolFailed(f"{place} is not one of its choices")
        return value
    kind = schema.get("type")
    if kind is None:
        return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if not _is(value, kind):
        raise ToolFailed(f"{place} is not {_KINDS[kind]}")
    if kind == "array" and "items" in schema:
        return [_fit(item, schema["items"], f"an item of {place}") for item in value]
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return {name: _fit(item, schema["additionalProperties"], f"a member of {place}") for name, item in value.items()}
    return value


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int)
        case "number":
            return isinstance(value, int | float)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return value is None and kind == "null"
