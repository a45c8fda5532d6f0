"""Converts a tool's JSON Schema to a form that every vendor accepts. Pure.

Vendors require an object at the top, without alternatives, and refuse a whole request for one invalid tool. The
conversion loses detail for the model only: tools check their arguments themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALTERNATIVES = ("anyOf", "oneOf")
_REFUSED = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref")
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_DEEPEST = 40


def of_object(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with an object at the top that has the properties of all alternatives, and with items for all arrays."""
    top = _flat(parameters, parameters, 0)
    top["type"] = "object"
    top.setdefault("properties", {})
    mended: dict[str, Any] = _mended(top, 0)
    return mended


def _flat(schema: Mapping[str, Any], whole: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """``schema`` with its branches and references merged into it."""
    if not any(name in schema for name in _REFUSED):
        return dict(schema)
    if depth > _DEEPEST:
        return {}
    out = {name: value for name, value in schema.items() if name not in _REFUSED}
    properties = dict(_table(schema.get("properties")))
    required = list(_list(schema.get("required")))
    sure = [*_list(schema.get("allOf")), _pointed(schema.get("$ref"), whole)]
    for branch in sure:
        added = _flat(_table(branch), whole, depth + 1)
        required += [name for name in _list(added.get("required")) if name not in required]
        properties |= {name: value for name, value in _table(added.get("properties")).items() if name not in properties}
        out |= {name: value for name, value in added.items() if name not in out}
    for branch in (each for name in _ALTERNATIVES for each in _list(schema.get(name))):
        added = _flat(_table(branch), whole, depth + 1)
        properties |= {name: value for name, value in _table(added.get("properties")).items() if name not in properties}
    if properties:
        out["properties"] = properties
    if required:
        out["required"] = required
    return out


def _pointed(reference: Any, whole: Mapping[str, Any]) -> Any:
    """The target of a reference within the schema; empty for any other reference."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = whole
    for step in reference[2:].split("/"):
        found = _table(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found


def _mended(schema: Any, depth: int) -> Any:
    """``schema`` with items that allow everything for arrays without any."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    out = dict(schema)
    for name in _NAMED:
        if isinstance(inner := out.get(name), Mapping):
            out[name] = {key: _mended(value, depth + 1) for key, value in inner.items()}
    for name in _LISTED:
        if isinstance(inner := out.get(name), list):
            out[name] = [_mended(value, depth + 1) for value in inner]
    for name in _ONE:
        if isinstance(out.get(name), Mapping):
            out[name] = _mended(out[name], depth + 1)
    kinds = out.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in out:
        out["items"] = {}
    return out


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
