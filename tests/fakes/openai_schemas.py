"""What OpenAI refuses in the parameters of a function, in its words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REFUSED = ("oneOf", "anyOf", "allOf", "enum", "const", "not")


def fault(name: str, schema: Mapping[str, Any]) -> str | None:
    """The message of the refusal; None: it is taken."""
    begin = f"Invalid schema for function '{name}': "
    if schema.get("type") != "object":
        return f"{begin}schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    if any(word in schema for word in _REFUSED):
        return f"{begin}schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    if "properties" not in schema:
        return f"{begin}In context=(), object schema missing properties."
    place = _array_without_items(schema, ())
    return None if place is None else f"{begin}In context={place}, array schema missing items."


def _array_without_items(schema: Any, place: tuple[str, ...]) -> tuple[str, ...] | None:
    if isinstance(schema, list):
        found = (_array_without_items(item, (*place, str(number))) for number, item in enumerate(schema))
        return next((each for each in found if each is not None), None)
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "array" and "items" not in schema:
        return place
    found = (_array_without_items(item, (*place, name)) for name, item in schema.items())
    return next((each for each in found if each is not None), None)
