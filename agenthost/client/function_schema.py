"""Description, JSON Schema and argument validation of a Python function, from its signature and docstring."""

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
_ARGUMENT_SECTIONS = ("args", "arguments", "parameters", "params")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class SchemaError(Exception):
    """The function has a signature that cannot be described to a model."""


class ArgumentError(Exception):
    """The model's arguments are invalid. The text is for the model."""


@dataclass(frozen=True, slots=True)
class DescribedFunction:
    """A function that a model can call."""

    description: str
    parameters: Mapping[str, Any]
    _function: Callable[..., Any]
    _arguments: type[BaseModel]

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments converted to the annotated types (dates, pydantic models)."""
        try:
            validated = self._arguments.model_validate(arguments)
        except ValidationError as error:
            errors = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors()]
            raise ArgumentError("; ".join(errors)) from None
        fields = self._arguments.model_fields
        known = {
            str(field.alias): getattr(validated, name) for name, field in fields.items() if name in validated.model_fields_set
        }
        return {**known, **(validated.model_extra or {})}

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._function)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        return self._function(**arguments)


def describe(function: Callable[..., Any]) -> DescribedFunction:
    description, texts = docstring(inspect.getdoc(function) or "")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise SchemaError(f"its signature cannot be read ({error})") from None
    fields: dict[str, Any] = {}
    accepts_others = False
    for number, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is parameter.VAR_KEYWORD:
            accepts_others = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise SchemaError(f"its parameter {name} cannot be passed by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints.get(name, Any)
        text = texts.get(name) or _annotated_text(hint)
        about: dict[str, Any] = {"description": text} if text else {}
        # Numbered field names, because a parameter may be called "json" or "_id", which pydantic reserves.
        fields[f"argument{number}"] = (hint, Field(default, alias=name, **about))
    try:
        config = ConfigDict(extra="allow" if accepts_others else "forbid")
        model = create_model(getattr(function, "__name__", "function"), __config__=config, **fields)
        schema = model.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise SchemaError(f"its parameters have no JSON Schema ({str(error).splitlines()[0]})") from None
    return DescribedFunction(description, _tidy(schema), function, model)


def _annotated_text(hint: Any) -> str | None:
    """The description in ``Annotated[int, "description"]``; None if there is no string."""
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, str)), None)


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles, which repeat the names and cost tokens in every request."""
    kept = {key: value for key, value in schema.items() if key != "title"}
    kept["properties"] = {
        name: {key: value for key, value in one.items() if key != "title"} for name, one in schema.get("properties", {}).items()
    }
    if kept.get("additionalProperties") is True:
        del kept["additionalProperties"]
    return kept


def docstring(text: str) -> tuple[str, dict[str, str]]:
    """(the text before the first section, the description of each argument)."""
    summary: list[str] = []
    texts: dict[str, str] = {}
    section = last = ""
    base = 0
    for line in text.splitlines():
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            section, last = heading[1].lower(), ""
        elif not section:
            summary.append(line)
        elif section in _ARGUMENT_SECTIONS and line.strip():
            found = _ARGUMENT.match(line.strip())
            indent = len(line) - len(line.lstrip())
            if found is not None and (not last or indent <= base):
                last, base = found[1], indent
                texts[last] = found[2].strip()
            elif last:
                texts[last] = f"{texts[last]} {line.strip()}".strip()
    return "\n".join(summary).strip(), texts
