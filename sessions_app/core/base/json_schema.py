"""JSON Schema for the declarations of shapes.py, as the components of an OpenAPI 3.1 document. Not loaded by requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from sessions_app.core.base.shapes import As, JSONText, Named, Rule, bare, is_number, members, notes, tag_of

Schema = dict[str, Any]

_SIMPLE: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", NoneType: "null", None: "null"}


class Components:
    """The named schemas of one document, added when something refers to them.

    ``replaced``: declarations that stand for others, for an older version of a protocol.
    """

    def __init__(self, replaced: Mapping[Any, Any] | None = None) -> None:
        self.schemas: dict[str, Schema] = {}
        self._replaced = replaced or {}
        self._declared: dict[str, Any] = {}

    def schema(self, declared: Any) -> Schema:
        """The schema of a declaration, or a reference to it if it has a name."""
        plain = bare(declared)
        plain = self._replaced.get(plain, plain)
        about = notes(declared)
        name = next((note.name for note in about if isinstance(note, Named)), None)
        if name is not None:
            return self._component(name, declared, lambda: self._noted(plain, about))
        return self._noted(plain, about)

    def _noted(self, plain: Any, about: tuple[Any, ...]) -> Schema:
        shown = next((self.schema(note.declared) for note in about if isinstance(note, As)), None) or self._plain(plain)
        # The last one: a use may describe a shared declaration more closely.
        text = next((note for note in reversed(about) if isinstance(note, str)), None)
        schema = shown if text is None else {"description": text, **shown}
        for note in about:
            if isinstance(note, Rule):
                schema = {**schema, **note.keywords}
            elif isinstance(note, JSONText):
                schema = {**schema, "contentMediaType": "application/json", "contentSchema": self.schema(note.declared)}
        return schema

    def _component(self, name: str, declared: Any, schema: Callable[[], Schema]) -> Schema:
        if name not in self._declared:
            # Before its schema is made, which may refer to it.
            self._declared[name] = declared
            self.schemas[name] = {}
            self.schemas[name] = schema()
        elif self._declared[name] != declared:
            raise TypeError(f"two shapes have the name {name}")
        return {"$ref": f"#/components/schemas/{name}"}

    def _plain(self, plain: Any) -> Schema:
        origin, arguments = get_origin(plain), get_args(plain)
        if plain is Any:
            return {}
        if plain in _SIMPLE:
            return {"type": _SIMPLE[plain]}
        if is_number(plain):
            return {"type": "number"}
        if is_typeddict(plain):
            if plain.__name__.startswith("_"):
                return self._object(plain)
            return self._component(plain.__name__, plain, lambda: self._object(plain))
        if origin is Literal:
            if len(arguments) == 1:
                return {"const": arguments[0]}
            return {"type": "string", "enum": list(arguments)} if type(arguments[0]) is str else {"enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": True if arguments[1] is Any else self.schema(arguments[1])}
        if origin in (Union, UnionType):
            return self._union(arguments)
        raise TypeError(f"{plain!r} is no shape of JSON")

    def _object(self, declared: Any) -> Schema:
        text = vars(declared).get("__doc__")
        schema: Schema = {"description": " ".join(inspect.cleandoc(text).split())} if text else {}
        schema["type"] = "object"
        found = members(declared)
        if required := [name for name, member in found.items() if member.required]:
            schema["required"] = required
        if found:
            schema["properties"] = {name: self.schema(member.declared) for name, member in found.items()}
        return schema

    def _union(self, arguments: tuple[Any, ...]) -> Schema:
        schema: Schema = {"oneOf": [self.schema(variant) for variant in arguments]}
        tag = tag_of(arguments) if all(is_typeddict(bare(variant)) for variant in arguments) else None
        mapping = {
            constant: branch["$ref"]
            for variant, branch in zip(arguments, schema["oneOf"], strict=True)
            if tag is not None
            for constant in get_args(members(bare(variant))[tag].declared)
        }
        if mapping and all(isinstance(constant, str) for constant in mapping):
            schema["discriminator"] = {"propertyName": tag, "mapping": mapping}
        return schema
