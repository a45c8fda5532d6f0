"""From a tool's source, as its definition names it, to the function that runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from agents_app.tools.arithmetic import calculator
from agents_app.tools.clock import current_time
from agents_app.tools.questions import ask_user

BUILTINS: Mapping[str, Callable[..., Any]] = {"ask_user": ask_user, "calculator": calculator, "current_time": current_time}


class NoFunction(Exception):
    """The source leads to nothing that can be called; the text says why, without its code's own words."""


_resolved: dict[str, Callable[..., Any]] = {}


def known(source: str) -> Callable[..., Any] | None:
    """What ``resolve`` would give, if it has given it before: no import, never slow."""
    return _resolved.get(source)


def resolve(source: str) -> Callable[..., Any]:
    """The function of ``python:module:name`` or ``builtin:name``. The first use of a module imports it."""
    if source not in _resolved:
        _resolved[source] = _find(source)
    return _resolved[source]


def _find(source: str) -> Callable[..., Any]:
    kind, _, rest = source.partition(":")
    if kind == "builtin":
        if rest not in BUILTINS:
            raise NoFunction(f"there is no builtin tool {rest!r}; there are {', '.join(BUILTINS)}")
        return BUILTINS[rest]
    module_name, _, path = rest.partition(":")
    if kind != "python" or not module_name or not path:
        raise NoFunction("write it as module:function")
    return _imported(module_name, path)


def _imported(module_name: str, path: str) -> Callable[..., Any]:
    try:
        found: Any = importlib.import_module(module_name)
    # A module's own code runs here and may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        reason = "no such module" if _is_missing(error, module_name) else f"importing it raised {type(error).__name__}"
        raise NoFunction(f"cannot import {module_name}: {reason}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise NoFunction(f"the module {module_name} has no {path}") from error
    if not callable(found) or inspect.isclass(found):
        raise NoFunction(f"{module_name}:{path} is not a function")
    function: Callable[..., Any] = found
    return function


def _is_missing(error: BaseException, module_name: str) -> bool:
    """Whether the module itself is missing, rather than one that it imports."""
    return isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
