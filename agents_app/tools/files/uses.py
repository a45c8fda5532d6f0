"""What the tools of an agent use in its workspace, for the operator's rules of access. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from agents_app.access_rules import Operation
from agents_app.spec import AgentSpec
from agents_app.tools.files.host import Path


@dataclass(frozen=True, slots=True)
class Use:
    """``argument``: the tool's parameter that names a path; empty: it uses all of the workspace."""

    operations: tuple[Operation, ...]
    argument: str = ""

    def path(self, arguments: Mapping[str, Any]) -> str:
        """The path as the model wrote it."""
        given = arguments.get(self.argument, ".") if self.argument else "."
        return given if isinstance(given, str) else "."


_READ = Use(("read",), "path")
# The result of a change shows the content before it.
_CHANGE = Use(("read", "write"), "path")
_BUILTIN: Mapping[str, Use] = {
    "builtin:read_file": _READ,
    "builtin:list_files": _READ,
    "builtin:search_files": _READ,
    "builtin:write_file": _CHANGE,
    "builtin:edit_file": _CHANGE,
    "builtin:run_command": Use(("run",), "cwd"),
}
_MCP = "mcp:"


def use_of(spec: AgentSpec, tool: str) -> Use | None:
    """What this tool of the agent uses; None: nothing of a workspace, as far as the server knows."""
    found = spec.tool(tool)
    if found is None:
        return None
    if found.source.startswith(_MCP):
        server = next((each for each in spec.mcp if each.name == found.source.split(":")[1]), None)
        uses_files = server is not None and server.program is not None and server.program.workspace != "none"
        return Use(("run",)) if uses_files else None
    return _BUILTIN.get(found.source)


permitted_path: ContextVar[Path | None] = ContextVar("permitted_path", default=None)
"""The path in the workspace that a client has permitted the call in progress to use; None: none."""
