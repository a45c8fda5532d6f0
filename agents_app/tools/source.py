"""Finds the function of a tool by the ``source`` in its definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from agents_app import object_references
from agents_app.runtime.interface import FileEdit
from agents_app.tools.arithmetic import calculator
from agents_app.tools.clock import current_time
from agents_app.tools.commands.running import run_command
from agents_app.tools.files.host import Files
from agents_app.tools.files.listing import list_files, search_files
from agents_app.tools.files.reading import read_file
from agents_app.tools.files.writing import edit_file, preview_edit, preview_write, write_file
from agents_app.tools.questions import ask_user
from agents_app.tools.web import fetch_url

BUILTINS: Mapping[str, Callable[..., Any]] = {
    "ask_user": ask_user,
    "calculator": calculator,
    "current_time": current_time,
    "edit_file": edit_file,
    "fetch_url": fetch_url,
    "list_files": list_files,
    "read_file": read_file,
    "run_command": run_command,
    "search_files": search_files,
    "write_file": write_file,
}
PREVIEWS: Mapping[str, Callable[[Files, Mapping[str, Any]], FileEdit]] = {
    "builtin:edit_file": preview_edit,
    "builtin:write_file": preview_write,
}
"""By source: a function that finds the change that a call with these arguments would make, and makes none."""
_READ_FILES = frozenset({"builtin:list_files", "builtin:read_file", "builtin:search_files"})
READ_ONLY = frozenset({"builtin:calculator", "builtin:current_time", "builtin:fetch_url"}) | _READ_FILES
"""Builtin tools that change nothing. Protocols report it to clients."""
REPEATABLE = READ_ONLY
"""Builtin tools that may run twice without harm; the agents file need not declare them idempotent."""
NEVER_REPEATED = frozenset({"builtin:run_command"})
"""Builtin tools that cannot be declared idempotent."""


class NoFunction(Exception):
    """The source has no function. The text gives the reason, without messages of the operator's code."""


_resolved: dict[str, Callable[..., Any]] = object_references.cache()


def known(source: str) -> Callable[..., Any] | None:
    """The function if it is resolved already; never imports."""
    return _resolved.get(source)


def resolve(source: str) -> Callable[..., Any]:
    """The function of ``python:module:name``, ``agent:module:agent:tool`` or ``builtin:name``.

    The first use of a module imports it.
    """
    if source not in _resolved:
        _resolved[source] = _find(source)
    return _resolved[source]


def _find(source: str) -> Callable[..., Any]:
    kind, _, rest = source.partition(":")
    if kind == "builtin":
        if rest not in BUILTINS:
            raise NoFunction(f"there is no builtin tool {rest!r}; there are {', '.join(BUILTINS)}")
        return BUILTINS[rest]
    if kind == "agent":
        return _of_agent(rest)
    if kind != "python":
        raise NoFunction("write it as module:function")
    try:
        found = object_references.find(rest)
    except object_references.ObjectNotFound as error:
        raise NoFunction(str(error).replace("module:name", "module:function")) from error
    if not callable(found) or inspect.isclass(found):
        raise NoFunction(f"{rest} is not a function")
    function: Callable[..., Any] = found
    return function


def _of_agent(rest: str) -> Callable[..., Any]:
    """A tool that an agent in Python defines."""
    # Imported when needed: few agents are written in Python, and their libraries are large.
    from agents_app.tools import agent_tools

    reference, _, name = rest.rpartition(":")
    try:
        return agent_tools.of(object_references.find(reference))[name].function
    except (object_references.ObjectNotFound, agent_tools.NotTaken) as error:
        raise NoFunction(str(error)) from error
    except KeyError:
        raise NoFunction(f"{reference} has no tool {name}") from None
