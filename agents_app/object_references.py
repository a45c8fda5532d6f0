"""Imports the object of a reference ``module:name`` in an agents file.

A module is searched on Python's path, and last in the folder of the agents file.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents_app import extras

_lock = threading.Lock()
_folders: list[Path] = []


_caches: list[dict[str, Any]] = []


class ObjectNotFound(Exception):
    """The reference has no object. The text gives the reason, without messages of the operator's code."""


def add_folder(folder: Path) -> None:
    """Allow references to modules of this folder. Installed modules come first, so it cannot replace any of them."""
    folder = folder.resolve()
    with _lock:
        if folder not in _folders:
            _folders.append(folder)
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    # Python may have cached the folder's content before the module was written.
    importlib.invalidate_caches()


def cache() -> dict[str, Any]:
    """A dict for what was made of objects, by their references. It is emptied when modules are imported anew."""
    made: dict[str, Any] = {}
    _caches.append(made)
    return made


def loaded_files() -> list[Path]:
    """The files beside agents files from which modules were imported."""
    return [Path(file) for file in _own_modules().values()]


@contextmanager
def imported_anew() -> Iterator[None]:
    """Within the block, modules beside agents files are imported anew. If it raises, the earlier modules stay.

    Code that runs keeps the modules with which it began.
    """
    with _lock:
        before = {name: sys.modules[name] for name in _own_modules()}
        cached = [dict(each) for each in _caches]
        for name in before:
            del sys.modules[name]
        for each in _caches:
            each.clear()
    importlib.invalidate_caches()
    try:
        yield
    except BaseException:
        with _lock:
            for name in _own_modules():
                del sys.modules[name]
            sys.modules.update(before)
            for each, kept in zip(_caches, cached, strict=True):
                each.clear()
                each.update(kept)
        raise


def _own_modules() -> dict[str, str]:
    """By name, the files of the imported modules that are in one of the folders."""
    found = {}
    # A comparison of texts first: the embedded server looks at all modules once a second.
    beginnings = tuple(map(str, _folders))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(beginnings) and file.endswith(".py") and _is_own(Path(file)):
            found[name] = file
    return found


def _is_own(file: Path) -> bool:
    """Whether the file is beside an agents file. Packages of an environment below its folder are not the operator's own code."""
    return "site-packages" not in file.parts and any(file.is_relative_to(folder) for folder in _folders)


def split(reference: str) -> tuple[str, str]:
    """The module and the dotted name in it."""
    module, _, path = reference.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), *path.split("."))):
        raise ObjectNotFound("write it as module:name")
    return module, path


def find(reference: str) -> Any:
    """The object. The first use of a module imports it, which runs its code and may be slow."""
    module_name, path = split(reference)
    try:
        module: Any = importlib.import_module(module_name)
    # A module's own code runs here and may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        reason = "no such module" if _is_missing(error, module_name) else f"importing it raised {_described(error)}"
        if (missing := _missing_module(error)) is not None and not _is_missing(error, module_name):
            reason = extras.how_to_get(missing)
        if (extra := _missing_extra(error)) is not None:
            reason = f"it needs the extra {extra}, which is not installed: {extras.command(extra)}"
        raise ObjectNotFound(f"cannot import {module_name}: {reason}") from error
    if (hidden := _hidden_by(module)) is not None:
        raise ObjectNotFound(f"{hidden} is beside the agents file, but Python has another module {module_name}: rename yours")
    found = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ObjectNotFound(f"the module {module_name} has no {path}") from error
    return found


def _described(error: BaseException) -> str:
    """The exception's class, and of a missing module its name: never the message, which is the code's own text."""
    missing = _missing_module(error)
    return type(error).__name__ if missing is None else f"{type(error).__name__} ({missing} is not installed)"


def _missing_module(error: BaseException) -> str | None:
    """The module that an import did not find. Libraries raise their own ImportError from that of a module they can do without."""
    for each in (error, error.__cause__):
        if isinstance(each, ModuleNotFoundError) and each.name and all(part.isidentifier() for part in each.name.split(".")):
            return each.name
    return None


def _missing_extra(error: BaseException) -> str | None:
    missing = _missing_module(error)
    extra = None if missing is None else extras.bringing(missing)
    return None if extra is None or extras.is_installed(extras.EXTRAS[extra]) else extra


def _is_missing(error: BaseException, module_name: str) -> bool:
    """Whether the module itself is missing, rather than one that it imports."""
    return isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module_name}.".startswith(f"{error.name}.")


def _hidden_by(module: Any) -> str | None:
    """The file beside an agents file that another module of the same name hides, if there is one."""
    relative = Path(*module.__name__.split("."))
    beside = [path for folder in _folders for path in (folder / f"{relative}.py", folder / relative / "__init__.py")]
    meant = [path for path in beside if path.is_file()]
    origin = getattr(module, "__file__", None)
    if not meant or (origin is not None and Path(origin).resolve() in meant):
        return None
    return meant[0].name
