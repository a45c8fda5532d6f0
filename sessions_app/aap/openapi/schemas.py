"""JSON schemas, written short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A shape of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: Schema, optional: Schema | None = None, text: str = "") -> Schema:
    schema: Schema = {"type": "object", "required": list(required)} if required else {"type": "object"}
    members = {**required, **(optional or {})}
    if members:
        schema["properties"] = members
    return {"description": text, **schema} if text else schema


def list_of(items: Schema, text: str = "", **limits: Any) -> Schema:
    schema: Schema = {"type": "array", "items": items, **limits}
    return {"description": text, **schema} if text else schema


def string(text: str = "", **rules: Any) -> Schema:
    schema: Schema = {"type": "string", **rules}
    return {"description": text, **schema} if text else schema


def one_of(member: str, shapes: Mapping[str, str]) -> Schema:
    """One of several shapes, told apart by the word in ``member``."""
    mapping = {word: ref(shape)["$ref"] for word, shape in shapes.items()}
    return {"oneOf": [ref(shape) for shape in shapes.values()], "discriminator": {"propertyName": member, "mapping": mapping}}


def whole(pattern: str) -> str:
    return f"^(?:{pattern})$"
