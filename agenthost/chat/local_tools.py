"""Client tools: Python functions that run locally, and tools whose results the user types."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from agenthost.client.errors import UsageError
from agenthost.client.function_schema import DescribedFunction
from agenthost.client.tools import NAME, ClientTool, Outcome, content_of, failure, from_function


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
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not NAME.fullmatch(document["name"]):
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


def run(function: DescribedFunction, arguments: Mapping[str, Any], runner: asyncio.Runner) -> Outcome:
    """Call the function, in the main thread and outside of the loop. If it raises, the error message is the result."""
    try:
        checked = function.checked(arguments)
        with _stdout_to_stderr():
            value = function.call(checked)
            if inspect.isawaitable(value):
                value = runner.run(_wait_for(value))
    except Exception as error:  # the user's code may raise anything; the conversation continues
        return failure(error)
    return Outcome(content_of(value))


async def _wait_for(value: Any) -> Any:
    return await value


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep the output of a tool out of stdout, which may be piped to another program."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
