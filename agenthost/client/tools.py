"""Client tools: Python functions that the application runs for an agent."""

from __future__ import annotations

import inspect
import json
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenthost.client.errors import UsageError
from agenthost.client.function_schema import ArgumentError, DescribedFunction, SchemaError, describe

MOST_CHARACTERS = 1_000_000
"""Limit of a result; models cannot read more anyway."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Invoke = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function outside of the event loop."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """``function`` None: the result comes from elsewhere, such as a user, and the turn stops to wait for it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: DescribedFunction | None = None

    @property
    def specification(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for the model, and the error message for the user, if the call failed."""

    content: Any
    error: str = ""


def from_function(function: Callable[..., Any]) -> ClientTool:
    """A tool with the function's name, and its schema from the signature and docstring."""
    name = getattr(function, "__name__", type(function).__name__)
    if not NAME.fullmatch(name):
        raise UsageError(f"The function {name!r} cannot be a tool: the name must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    try:
        made = describe(function)
    except SchemaError as error:
        raise UsageError(f"The function {name} cannot be a tool: {error}") from None
    return ClientTool(name, made.description, made.parameters, made)


def by_name(given: Sequence[Callable[..., Any] | ClientTool]) -> dict[str, ClientTool]:
    """The tools by name; raises UsageError if two have the same name."""
    found: dict[str, ClientTool] = {}
    for each in given:
        tool = each if isinstance(each, ClientTool) else from_function(each)
        if tool.name in found:
            raise UsageError(f"Two tools have the name {tool.name}")
        found[tool.name] = tool
    return found


async def run(function: DescribedFunction, arguments: Mapping[str, Any], invoke: Invoke) -> Outcome:
    """Call the function: a coroutine function on the loop, another one with ``invoke``. Its errors are the result."""
    try:
        checked = function.checked(arguments)
        value = function.call(checked) if function.is_async else await invoke(lambda: function.call(checked))
        if inspect.isawaitable(value):
            value = await value
    except Exception as error:  # the application's code may raise anything; the conversation continues
        return failure(error)
    return Outcome(content_of(value))


def failure(error: Exception) -> Outcome:
    """What the model and the user are shown of a function's error."""
    if isinstance(error, ArgumentError):
        return Outcome(f"Tool execution failed: {error}", f"the agent's arguments are invalid: {error}")
    message = "".join(traceback.format_exception_only(error)).strip()
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Outcome(f"Tool execution failed: {message}", f"{message} ({last.filename}:{last.lineno})")


def content_of(value: Any) -> Any:
    """The return value of a function as the content of a tool message."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _truncated(value)
    if isinstance(value, list) and value and all(_is_block(each) for each in value):
        return value
    try:
        return _truncated(json.dumps(value, ensure_ascii=False, default=_to_json))
    except (ValueError, TypeError, RecursionError):
        return _truncated(str(value))


def _to_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _is_block(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return (value.keys() == {"type", "text"} and value["type"] == "text" and isinstance(value["text"], str)) or (
        value.keys() == {"type", "url"} and value["type"] == "image" and isinstance(value["url"], str)
    )


def _truncated(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n[{len(text) - MOST_CHARACTERS} characters omitted]"
