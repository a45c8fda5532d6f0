"""A tool's schema, made from a Python function's signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
    inspect.Parameter.empty: {},
}
_LISTS = (list, Sequence)
_OBJECTS = (dict, Mapping)
_ARGS = ("args:", "arguments:", "parameters:")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class NoSchema(Exception):
    """The function cannot be described to a model; the text gives the reason."""


def describe(function: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """(description, JSON Schema of the arguments) of a function."""
    description, texts = _docstring(inspect.getdoc(function) or "")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise NoSchema(f"its signature cannot be read ({error})") from error
    properties: dict[str, Any] = {}
    required: list[str] = []
    others = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            others = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise NoSchema(f"its parameter {name} cannot be given by name")
        schema = _schema(hints.get(name, parameter.annotation), name)
        text = texts.get(name)
        if text and "description" not in schema:
            schema = {**schema, "description": text}
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is None or isinstance(parameter.default, str | int | float | bool):
            schema = {**schema, "default": parameter.default}
        properties[name] = schema
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    if not others:
        parameters["additionalProperties"] = False
    return description, parameters


def _annotated(function: Callable[..., Any]) -> Any:
    """The object with the annotations: for a callable instance its ``__call__``."""
    if inspect.isroutine(function) or inspect.isclass(function):
        return inspect.unwrap(function)
    return type(function).__call__


def _schema(hint: Any, name: str) -> dict[str, Any]:
    if isinstance(hint, type | types.NoneType) or hint is Any or hint is inspect.Parameter.empty:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if hint in _LISTS:
            return {"type": "array"}
        if hint in _OBJECTS:
            return {"type": "object"}
    if hint is None:
        return {"type": "null"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = next((item for item in arguments[1:] if isinstance(item, str)), None)
        schema = _schema(arguments[0], name)
        return {**schema, "description": text} if text else schema
    if origin is Literal:
        return _enumeration(arguments, name)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument, name) for argument in arguments]}
    if origin in _LISTS:
        return {"type": "array", "items": _schema(arguments[0], name)}
    if origin in _OBJECTS:
        if arguments[0] is not str:
            raise NoSchema(f"its parameter {name} has keys that are not strings")
        value = _schema(arguments[1], name)
        return {"type": "object", "additionalProperties": value} if value else {"type": "object"}
    raise NoSchema(f"its parameter {name} has a type that has no JSON Schema")


def _enumeration(values: tuple[Any, ...], name: str) -> dict[str, Any]:
    if not all(value is None or isinstance(value, str | int | bool) for value in values):
        raise NoSchema(f"its parameter {name} has choices that are not JSON")
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": list(values)}
    return {"enum": list(values)}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the descriptions of parameters in the section ``Args:``."""
    before: list[str] = []
    arguments: dict[str, str] = {}
    section: str | None = None
    current: str | None = None
    level: int | None = None
    for line in text.splitlines():
        stripped = line.strip()
        if not line.startswith((" ", "\t")) and re.fullmatch(r"[A-Z]\w*( \w+)?:", stripped):
            section, current, level = stripped.lower(), None, None
            continue
        if section is None:
            before.append(line)
            continue
        if section not in _ARGS or not stripped:
            continue
        depth = len(line) - len(line.lstrip())
        level = depth if level is None else level
        found = _ARGUMENT.fullmatch(stripped) if depth <= level else None
        if found:
            current = found.group(1)
            arguments[current] = found.group(2)
        elif current is not None:
            arguments[current] = f"{arguments[current]} {stripped}".strip()
    return "\n".join(before).strip(), arguments
