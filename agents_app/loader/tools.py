"""Reads the tools of an agent from its file.

Python tools are imported, so that a missing function is a fault at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agents_app.loader.table import Table
from agents_app.spec import ToolSpec
from agents_app.tools import questions
from agents_app.tools.signature import NoSchema, describe
from agents_app.tools.source import NEVER_REPEATED, REPEATABLE, NoFunction, resolve

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read(table: Table) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for entry in table.tables("tools"):
        tool = _tool(entry)
        if tool is None:
            continue
        if any(other.name == tool.name for other in found):
            entry.fault("name", f"there is another tool of the name {tool.name}")
        found.append(tool)
    return tuple(found)


def _tool(entry: Table) -> ToolSpec | None:
    python, builtin = entry.text("python"), entry.text("builtin")
    name, description = entry.text("name"), entry.text("description")
    made: Callable[[str, str, str, dict[str, Any]], ToolSpec] = _tool_maker(entry)
    entry.refuse_unknown()
    if entry.has("python") == entry.has("builtin"):
        entry.fault("python", "a tool has either python or builtin")
        return None
    if python is None and builtin is None:
        return None
    key = "python" if python is not None else "builtin"
    source = f"{key}:{python if python is not None else builtin}"
    try:
        function = resolve(source)
        own_description, parameters = describe(function)
        if source == questions.SOURCE:
            parameters = questions.PARAMETERS
    except (NoFunction, NoSchema) as error:
        entry.fault(key, str(error))
        return None
    if name is None:
        name = builtin or getattr(function, "__name__", "") or source.rpartition(":")[2].rpartition(".")[2]
    if not NAME.fullmatch(name):
        entry.fault("name", "must have 1 to 64 characters of A-Z a-z 0-9 _ -")
        return None
    return made(name, source, own_description if description is None else description, parameters)


def _tool_maker(entry: Table) -> Callable[[str, str, str, dict[str, Any]], ToolSpec]:
    """Read the keys that do not depend on the function first, so that their faults are found even if it is missing."""
    title, timeout = entry.text("title"), entry.seconds("timeout")
    expose, idempotent = entry.flag("expose", default=True), entry.flag("idempotent", default=False)
    confirm_result = entry.flag("confirm_result", default=False)

    def make(name: str, source: str, description: str, parameters: dict[str, Any]) -> ToolSpec:
        if idempotent and source in NEVER_REPEATED:
            entry.fault("idempotent", "a command runs at most once: nobody knows whether it may run again")
        return ToolSpec(
            name=name,
            source=source,
            title=title,
            description=_UNSTORABLE.sub("\ufffd", description),
            parameters=parameters,
            expose=expose,
            timeout=timeout,
            idempotent=idempotent or source in REPEATABLE,
            confirm_result=confirm_result,
        )

    return make
