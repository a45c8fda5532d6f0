"""What a Python function tells of itself: description, JSON Schema of its arguments, and the check of those that come."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

_SECTION = re.compile(r"(args|arguments|parameters|params|returns?|raises|yields|examples?|notes?):\s*", re.IGNORECASE)
_OF_ARGUMENTS = ("args", "arguments", "parameters", "params")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class NoSchema(Exception):
    """The function cannot be described to a model; the text says why."""


class WrongArguments(Exception):
    """What a model gave does not fit; the text is for the model."""


@dataclass(frozen=True, slots=True)
class Described:
    """A function that a model can call."""

    description: str
    parameters: Mapping[str, Any]
    _function: Callable[..., Any]
    _arguments: type[BaseModel]

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function's annotations want them: dates as dates, models as models."""
        try:
            made = self._arguments.model_validate(arguments)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors()]
            raise WrongArguments("; ".join(faults)) from None
        fields = self._arguments.model_fields
        given = {str(field.alias): getattr(made, name) for name, field in fields.items() if name in made.model_fields_set}
        return {**given, **(made.model_extra or {})}

    def call(self, arguments: Mapping[str, Any]) -> Any:
        return self._function(**arguments)


def described(function: Callable[..., Any]) -> Described:
    description, texts = docstring(inspect.getdoc(function) or "")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise NoSchema(f"its signature cannot be read ({error})") from None
    fields: dict[str, Any] = {}
    others = False
    for number, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is parameter.VAR_KEYWORD:
            others = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise NoSchema(f"its parameter {name} cannot be given by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(name, Any)
        text = texts.get(name) or _annotated_text(hint)
        about: dict[str, Any] = {"description": text} if text else {}
        # Named by number: a parameter called "json" or "_id" is none of a model's own names.
        fields[f"argument{number}"] = (hint, Field(default, alias=name, **about))
    try:
        model = create_model(function.__name__, __config__=ConfigDict(extra="allow" if others else "forbid"), **fields)
        schema = model.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise NoSchema(f"its parameters have no JSON Schema ({str(error).splitlines()[0]})") from None
    return Described(description, _tidy(schema), function, model)


def _annotated_text(hint: Any) -> str | None:
    """The plain text in ``Annotated[int, "what it is"]``; whatever else is annotated speaks for itself."""
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, str)), None)


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that are the names once more: each costs tokens in every request."""
    kept = {key: value for key, value in schema.items() if key != "title"}
    kept["properties"] = {
        name: {key: value for key, value in one.items() if key != "title"} for name, one in schema.get("properties", {}).items()
    }
    if kept.get("additionalProperties") is True:
        del kept["additionalProperties"]
    return kept


def docstring(text: str) -> tuple[str, dict[str, str]]:
    """(what stands before the sections, the text of each argument)."""
    described: list[str] = []
    texts: dict[str, str] = {}
    section = last = ""
    base = 0
    for line in text.splitlines():
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            section, last = heading[1].lower(), ""
        elif not section:
            described.append(line)
        elif section in _OF_ARGUMENTS and line.strip():
            found = _ARGUMENT.match(line.strip())
            indent = len(line) - len(line.lstrip())
            if found is not None and (not last or indent <= base):
                last, base = found[1], indent
                texts[last] = found[2].strip()
            elif last:
                texts[last] = f"{texts[last]} {line.strip()}".strip()
    return "\n".join(described).strip(), texts
