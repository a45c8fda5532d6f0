"""The tools that an agent in Python defines: functions of an own class, or function tools of a ``pydantic_ai.Agent``."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json
from agents_app.errors import ToolFailed
from agents_app.tools.signature import NoSchema, describe


class NotTaken(Exception):
    """The object is not an agent, so it has no tools."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A tool as its agent describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any] = field(repr=False)
    timeout: float | None = None


def is_pydantic(found: Any) -> bool:
    """Whether this is a ``pydantic_ai.Agent``; does not import the library for objects that cannot be one."""
    library = sys.modules.get("pydantic_ai")
    return library is not None and isinstance(found, library.agent.AbstractAgent)


def is_own(found: Any) -> bool:
    """Whether this is a class of Agenthost's own interface, or an instance of one."""
    return callable(getattr(found, "respond", None)) and not is_pydantic(found)


def of(found: Any) -> dict[str, Brought]:
    """The agent's supported tools by name."""
    return {tool.name: tool for tool in brought(found)[0]}


def brought(found: Any) -> tuple[list[Brought], list[str]]:
    """The agent's supported tools, and the faults of the others."""
    if is_pydantic(found):
        return _of_pydantic(found)
    if is_own(found):
        return _of_own(found)
    raise NotTaken("neither a pydantic_ai.Agent nor a class with a method respond")


def _of_own(found: Any) -> tuple[list[Brought], list[str]]:
    tools: list[Brought] = []
    faults: list[str] = []
    functions = getattr(found, "tools", ())
    if not isinstance(functions, list | tuple):
        return [], ["tools must be a list of functions"]
    for function in functions:
        name = getattr(function, "__name__", "") or type(function).__name__
        if not callable(function) or inspect.isclass(function):
            faults.append("tools holds something that is not a function")
            continue
        try:
            description, parameters = describe(function)
        except NoSchema as error:
            faults.append(f"tool {name}: {error}")
            continue
        tools.append(Brought(name, description, parameters, function))
    return tools, faults


# --- pydantic_ai -------------------------------------------------------------------------------------

TOOL_PARAMETERS: Mapping[str, str] = {
    # Supported, or without effect beyond the tool's schema.
    "function": "",
    "name": "",
    "description": "",
    "timeout": "",
    "docstring_format": "",
    "require_parameter_descriptions": "",
    "schema_generator": "",
    "function_schema": "",
    # Refused, each with an alternative.
    "takes_ctx": "takes a RunContext, which there is none of here; what it needs belongs into its arguments or its module",
    "max_retries": "has retries; leave them out: the model sees what failed and calls again, within max_steps",
    "prepare": "has a prepare function; a tool is offered as it is, or left out of the agent",
    "args_validator": "has an args_validator; raise ModelRetry in the tool itself",
    "strict": "has strict; leave it out: arguments are checked here before the tool runs",
    "sequential": "has sequential; calls of one step run side by side",
    "requires_approval": "has requires_approval; leave it out: clients are asked about every tool that they have not trusted",
    "metadata": "has metadata, which nothing here reads; leave it out",
    "tool_kind": "has a tool_kind, which nothing here reads; leave it out",
    "defer_loading": "has defer_loading; every tool is offered from the first step",
    "include_return_schema": "has include_return_schema; say in the description what it returns",
}
"""The parameters of ``pydantic_ai.Tool``: empty, or the reason why a tool that sets it is refused."""


def function_toolsets(agent: Any) -> list[Any]:
    """An agent's toolsets of plain functions: its own and those passed to it."""
    from pydantic_ai import FunctionToolset

    given = [toolset for toolset in agent._user_toolsets if type(toolset) is FunctionToolset]
    return [agent._function_toolset, *given]


def _of_pydantic(agent: Any) -> tuple[list[Brought], list[str]]:
    tools: list[Brought] = []
    faults: list[str] = []
    for toolset in function_toolsets(agent):
        if toolset.max_retries is not None:
            faults.append(f"a toolset {TOOL_PARAMETERS['max_retries']}")
        for tool in toolset.tools.values():
            wrong = [reason for name, reason in TOOL_PARAMETERS.items() if reason and getattr(tool, name)]
            faults += [f"tool {tool.name} {reason}" for reason in wrong]
            if not wrong:
                schema = tool.function_schema.json_schema
                timeout = tool.timeout if tool.timeout is not None else toolset.timeout
                tools.append(Brought(tool.name, tool.description or "", schema, _called(tool.function_schema), timeout))
    return tools, faults


def _called(schema: Any) -> Callable[..., Any]:
    """The tool's function with arguments by name; converts its result and its exceptions."""
    call: Callable[..., Any]
    if schema.is_async:

        async def call_async(**arguments: Any) -> Any:
            return await _finished(schema, arguments)

        call = call_async
    else:

        def call_plain(**arguments: Any) -> Any:
            with _Reasons():
                positional, named = _checked(schema, arguments)
                value = schema.function(*positional, **named)
            return _awaited(value) if inspect.isawaitable(value) else _plain(value)

        call = call_plain
    # Read by the tool set: the library validates arguments itself.
    call.__dict__["checks_arguments"] = True
    return call


async def _finished(schema: Any, arguments: dict[str, Any]) -> Any:
    with _Reasons():
        positional, named = _checked(schema, arguments)
        return _plain(await schema.function(*positional, **named))


async def _awaited(value: Any) -> Any:
    with _Reasons():
        return _plain(await value)


def _checked(schema: Any, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    from pydantic import ValidationError

    try:
        # Validated as JSON: a date or an enumeration comes as a string.
        named: dict[str, Any] = dict(schema.validator.validate_json(exact_json.dumps(arguments)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ToolFailed(f"the argument {place}: {first['msg']}" if place else first["msg"]) from None
    positional = [named.pop(name) for name in schema.positional_fields]
    if schema.var_positional_field:
        positional += named.pop(schema.var_positional_field)
    return positional, named


class _Reasons:
    """Converts the library's exceptions for a tool without a result to ``ToolFailed``."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from pydantic_ai import exceptions

        if isinstance(error, exceptions.ModelRetry | exceptions.ToolFailed):
            raise ToolFailed(str(error.message)) from None
        if isinstance(error, exceptions.CallDeferred | exceptions.ApprovalRequired):
            raise ToolFailed("it asks for an approval of its own, which is not supported here") from None


def _plain(value: Any) -> Any:
    """A result as a string, blocks or a JSON value."""
    from pydantic_ai.messages import ToolReturn
    from pydantic_core import to_jsonable_python

    if isinstance(value, ToolReturn):
        return _blocks([*_items(value.return_value), *_items(value.content)]) if value.content else _plain(value.return_value)
    if isinstance(value, str):
        return value
    items = _items(value)
    if any(_block(item) is not None for item in items):
        return _blocks(items)
    return to_jsonable_python(value, serialize_unknown=False)


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _blocks(items: list[Any]) -> list[dict[str, str]]:
    return [_block(item) or {"type": "text", "text": item if isinstance(item, str) else _text(item)} for item in items]


def _block(item: Any) -> dict[str, str] | None:
    """An image; None for anything else."""
    from pydantic_ai.messages import BinaryContent, ImageUrl

    if isinstance(item, ImageUrl):
        return {"type": "image", "url": item.url}
    if isinstance(item, BinaryContent) and item.is_image:
        return {"type": "image", "url": f"data:{item.media_type};base64,{base64.b64encode(item.data).decode()}"}
    return None


def _text(item: Any) -> str:
    from pydantic_core import to_jsonable_python

    return exact_json.dumps(to_jsonable_python(item))
