"""Loads an agents file: its agents, or all its faults.

Faults are collected, each with its table, key and reason, so that an operator can correct all of them at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents_app import object_references
from agents_app.access_rules import AccessRule
from agents_app.errors import AgentsFileError, FileFault
from agents_app.loader import access, agent
from agents_app.loader.lines import Lines
from agents_app.loader.table import TOP, Table, unknown
from agents_app.spec import AgentSpec


def load(path: Path) -> list[AgentSpec]:
    """The agents of the file, in its order; ``AgentsFileError`` with all faults if there are any."""
    document = _parsed(path)
    if _names_code(document):
        object_references.add_folder(path.parent)
    try:
        return read(document, path)
    except AgentsFileError as error:
        lines = Lines(path.read_text(encoding="utf-8"))
        # The name of the agent, in parentheses, is for people.
        found = [replace(fault, line=lines.of(fault.table.partition(" (")[0], fault.key)) for fault in error.faults]
        raise AgentsFileError(error.path, found) from None


def lines_of_agents(path: Path) -> list[int | None]:
    """The lines at which the agents of the file begin, in its order, as the file is now."""
    try:
        count = len(_parsed(path).get("agents", ()))
        lines = Lines(path.read_text(encoding="utf-8"))
    except (AgentsFileError, OSError, TypeError):
        return []
    return [lines.of(f"agents[{index}]", "") for index in range(count)]


def server_access(path: Path) -> tuple[AccessRule, ...]:
    """The rules of access for the whole server, which every agent of the file has after its own. The file is without faults."""
    return access.read(Table(_parsed(path), TOP, "", []))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentsFileError(str(path), [FileFault(TOP, "", error.strerror or "cannot be read")]) from error
    except UnicodeDecodeError as error:
        raise AgentsFileError(str(path), [FileFault(TOP, "", "is not UTF-8")]) from error
    except tomllib.TOMLDecodeError as error:
        raise AgentsFileError(str(path), [FileFault(TOP, "", f"is not TOML: {error}")]) from error


def read(document: Mapping[str, Any], path: Path) -> list[AgentSpec]:
    """The agents of a parsed file; ``path`` is its path."""
    faults: list[FileFault] = []
    specs = _agents(document, path.parent, faults)
    if faults:
        raise AgentsFileError(str(path), faults)
    return specs


def _agents(document: Mapping[str, Any], folder: Path, faults: list[FileFault]) -> list[AgentSpec]:
    top = Table(document, TOP, "", faults)
    of_server = access.read(top)
    specs: list[AgentSpec] = []
    names: set[str] = set()
    for table in top.tables("agents"):
        made = agent.read(table, folder)
        if made.name and made.name in names:
            table.fault("name", f"there is another agent of the name {made.name}")
        names.add(made.name)
        specs.append(replace(made, access=(*made.access, *of_server)) if of_server else made)
    if not specs and not faults:
        faults.append(FileFault(TOP, "agents", "holds no [[agents]]"))
    known = ("agents", "access")
    faults.extend(FileFault(TOP, key, unknown(key, known)) for key in document if key not in known)
    return specs


def _names_code(value: Any) -> bool:
    """Whether anything in the file refers to Python code."""
    if isinstance(value, dict):
        return "python" in value or any(_names_code(item) for item in value.values())
    if isinstance(value, list):
        return any(_names_code(item) for item in value)
    return isinstance(value, str) and value.startswith("python:")
