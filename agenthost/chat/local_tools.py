"""Client tools: Python functions that run locally, and tools whose results the user types."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agenthost.chat.errors import UsageError
from agenthost.chat.function_schema import ArgumentError, DescribedFunction, SchemaError, describe

MOST_CHARACTERS = 1_000_000
"""Limit of a result; models cannot read more anyway."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """``function`` None: the user types the result."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: DescribedFunction | None = None

    @property
    def specification(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


def from_function(function: Callable[..., Any]) -> ClientTool:
    name = function.__name__
    if not _NAME.fullmatch(name):
        raise UsageError(f"The function {name!r} cannot be a tool: the name must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    try:
        made = describe(function)
    except SchemaError as error:
        raise UsageError(f"The function {name} cannot be a tool: {error}") from None
    return ClientTool(name, made.description, made.parameters, made)


def from_module(reference: str) -> list[ClientTool]:
    """The public functions of a module or a file, or the one named after a colon: ``tools.py:look_up``."""
    source, colon, wanted = reference.rpartition(":")
    if not colon or "/" in wanted or "\\" in wanted:
        source, wanted = reference, ""
    module = _module(source)
    if wanted:
        function = getattr(module, wanted, None)
        if not inspect.isroutine(function):
            raise UsageError(f"{source} has no function {wanted!r}")
        return [from_function(function)]
    named = getattr(module, "__all__", None)
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and (name in named if named is not None else not name.startswith("_") and value.__module__ == module.__name__)
    ]
    if not found:
        raise UsageError(f"{source} has no tools: it defines no public functions")
    return [from_function(function) for function in found]


def _module(source: str) -> ModuleType:
    try:
        if source.endswith(".py") or "/" in source:
            return _import_file(Path(source).expanduser())
        if "" not in sys.path:
            # For an installed script, the first entry is the folder of scripts instead.
            sys.path.insert(0, "")
        return importlib.import_module(source)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{source} cannot be imported: there is no module {error.name!r}") from None
    except Exception as error:  # the user's code may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{source} cannot be imported: {type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        ) from None


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}")
    name = path.stem
    if name in sys.modules:
        # A file called json.py must not replace the module json.
        name = f"agenthost_chat_tools_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # So that it can import modules in its folder.
        sys.path.append(folder)
    specification.loader.exec_module(module)
    return module


def from_file(path: str) -> list[ClientTool]:
    """The tools declared in a JSON file; the user types their results."""
    try:
        document = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    listed = document.get("tools") if isinstance(document, dict) and "tools" in document else document
    return [_declared(path, number, each) for number, each in enumerate(listed if isinstance(listed, list) else [listed])]


def _declared(path: str, number: int, document: Any) -> ClientTool:
    where = f"{path}, tool {number + 1}"
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not _NAME.fullmatch(document["name"]):
        raise UsageError(f"{where}: a tool must be an object with a name of 1 to 64 characters of A-Z a-z 0-9 _ -")
    description, parameters = document.get("description", ""), document.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(description, str):
        raise UsageError(f"{where} ({document['name']}): the description must be a string")
    if not isinstance(parameters, dict):
        raise UsageError(f"{where} ({document['name']}): the parameters must be a JSON Schema object")
    return ClientTool(document["name"], description, parameters)


def load_all(modules: Sequence[str], files: Sequence[str]) -> dict[str, ClientTool]:
    """The tools of all modules and files, by name; raises UsageError if two have the same name."""
    found: dict[str, ClientTool] = {}
    for tool in [
        *(tool for each in modules for tool in from_module(each)),
        *(tool for each in files for tool in from_file(each)),
    ]:
        if tool.name in found:
            raise UsageError(f"Two tools have the name {tool.name}")
        found[tool.name] = tool
    return found


# --- running one ---


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for the model, and the error message for the user, if the call failed."""

    content: Any
    error: str = ""


def run(function: DescribedFunction, arguments: Mapping[str, Any], runner: asyncio.Runner) -> Outcome:
    """Call the function. If it raises, the error message is the result."""
    try:
        checked = function.checked(arguments)
    except ArgumentError as error:
        return Outcome(f"Tool execution failed: {error}", f"the agent's arguments are invalid: {error}")
    try:
        with _stdout_to_stderr():
            value = function.call(checked)
            if inspect.isawaitable(value):
                value = runner.run(_wait_for(value))
    except Exception as error:  # the user's code may raise anything; the conversation continues
        message = "".join(traceback.format_exception_only(error)).strip()
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(f"Tool execution failed: {message}", f"{message} ({last.filename}:{last.lineno})")
    return Outcome(content_of(value))


async def _wait_for(value: Any) -> Any:
    return await value


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep the output of a tool out of stdout, which may be piped to another program."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


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
