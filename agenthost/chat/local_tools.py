"""Tools that this client brings: Python functions run here, and tools whose results a person types."""

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

from agenthost.chat.errors import WrongUse
from agenthost.chat.function_schema import Described, NoSchema, WrongArguments, described

MOST_CHARACTERS = 1_000_000
"""Of a result: what a model could not read anyway is not sent."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """``function`` None: a person types what it gives."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Described | None = None

    @property
    def specification(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


def of_function(function: Callable[..., Any]) -> ClientTool:
    name = function.__name__
    if not _NAME.fullmatch(name):
        raise WrongUse(f"The function {name!r} cannot be a tool: a name has 1 to 64 of A-Z a-z 0-9 _ -")
    try:
        made = described(function)
    except NoSchema as error:
        raise WrongUse(f"The function {name} cannot be a tool: {error}") from None
    return ClientTool(name, made.description, made.parameters, made)


def of_module(reference: str) -> list[ClientTool]:
    """The public functions of a module or a file, or the one that stands behind a colon: ``tools.py:look_up``."""
    place, colon, wanted = reference.rpartition(":")
    if not colon or "/" in wanted or "\\" in wanted:
        place, wanted = reference, ""
    module = _module(place)
    if wanted:
        function = getattr(module, wanted, None)
        if not inspect.isroutine(function):
            raise WrongUse(f"{place} has no function {wanted!r}")
        return [of_function(function)]
    named = getattr(module, "__all__", None)
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and (name in named if named is not None else not name.startswith("_") and value.__module__ == module.__name__)
    ]
    if not found:
        raise WrongUse(f"{place} has no functions that could be tools: public ones, defined there")
    return [of_function(function) for function in found]


def _module(place: str) -> ModuleType:
    try:
        if place.endswith(".py") or "/" in place:
            return _from_file(Path(place).expanduser())
        if "" not in sys.path:
            # An installed script has the folder of scripts in its place.
            sys.path.insert(0, "")
        return importlib.import_module(place)
    except WrongUse:
        raise
    except ModuleNotFoundError as error:
        raise WrongUse(f"{place} cannot be imported: there is no module {error.name!r}") from None
    except Exception as error:  # whatever a person's own code does when it is imported
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise WrongUse(f"{place} cannot be imported: {type(error).__name__}: {error} ({last.filename}:{last.lineno})") from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WrongUse(f"There is no file {path}")
    name = path.stem
    if name in sys.modules:
        # A file of one's own called json.py must not become the json of everybody else.
        name = f"agenthost_chat_tools_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise WrongUse(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # As if it were run there: it may import its neighbours.
        sys.path.append(folder)
    specification.loader.exec_module(module)
    return module


def of_file(path: str) -> list[ClientTool]:
    """The tools that a JSON file declares, each to be answered by hand."""
    try:
        document = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{path} is not JSON: {error}") from None
    listed = document.get("tools") if isinstance(document, dict) and "tools" in document else document
    return [_declared(path, number, each) for number, each in enumerate(listed if isinstance(listed, list) else [listed])]


def _declared(path: str, number: int, document: Any) -> ClientTool:
    where = f"{path}, tool {number + 1}"
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not _NAME.fullmatch(document["name"]):
        raise WrongUse(f"{where}: a tool is an object with a name of 1 to 64 of A-Z a-z 0-9 _ -")
    description, parameters = document.get("description", ""), document.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(description, str):
        raise WrongUse(f"{where} ({document['name']}): its description must be a text")
    if not isinstance(parameters, dict):
        raise WrongUse(f"{where} ({document['name']}): its parameters must be a JSON Schema, an object")
    return ClientTool(document["name"], description, parameters)


def gathered(modules: Sequence[str], files: Sequence[str]) -> dict[str, ClientTool]:
    """All of them by name; WrongUse if two have one name."""
    found: dict[str, ClientTool] = {}
    for tool in [*(tool for each in modules for tool in of_module(each)), *(tool for each in files for tool in of_file(each))]:
        if tool.name in found:
            raise WrongUse(f"There are two tools called {tool.name}")
        found[tool.name] = tool
    return found


# --- running one ---


@dataclass(frozen=True, slots=True)
class Ran:
    """What goes to the model, and what only the person at the terminal is told."""

    content: Any
    fault: str = ""


def run(function: Described, arguments: Mapping[str, Any], runner: asyncio.Runner) -> Ran:
    """Call it here and now. What it raises is its result, in words."""
    try:
        given = function.checked(arguments)
    except WrongArguments as error:
        return Ran(f"Tool execution failed: {error}", f"the agent's arguments do not fit: {error}")
    try:
        with _prints_aside():
            value = function.call(given)
            if inspect.isawaitable(value):
                value = runner.run(_awaited(value))
    except Exception as error:  # a person's own code may raise anything, and the conversation goes on
        words = "".join(traceback.format_exception_only(error)).strip()
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Ran(f"Tool execution failed: {words}", f"{words} ({last.filename}:{last.lineno})")
    return Ran(content_of(value))


async def _awaited(value: Any) -> Any:
    return await value


@contextlib.contextmanager
def _prints_aside() -> Iterator[None]:
    """What a tool prints is no part of an answer that somebody pipes on."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def content_of(value: Any) -> Any:
    """A function's value as the content of a tool message."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list) and value and all(_is_block(each) for each in value):
        return value
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=_plain))
    except (ValueError, TypeError, RecursionError):
        return _cut(str(value))


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _is_block(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return (value.keys() == {"type", "text"} and value["type"] == "text" and isinstance(value["text"], str)) or (
        value.keys() == {"type", "url"} and value["type"] == "image" and isinstance(value["url"], str)
    )


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n[{len(text) - MOST_CHARACTERS} characters left out]"
