"""Converts the tools that MCP servers list to tools of an agent: selection, names, limits. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agents_app import exact_json, tool_lists
from agents_app.runtime.unicode import storable, storable_value
from agents_app.spec import AgentSpec, McpSpec, ToolSpec

SOURCE = "mcp:"

MOST_TOOLS = 500
MOST_LISTED = 2_000
"""Limit of tools in one server's list; the operator's patterns then select from them."""
_LISTED_TIMES = 4
MOST_SCHEMA_BYTES = 100_000
MOST_DESCRIPTION = 20_000
_LONGEST_NAME = 64
_LONGEST_TITLE = 200
_DEEPEST_SCHEMA = 50
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def most_listed_bytes() -> int:
    """Limit of bytes of declarations in one server's list."""
    return _LISTED_TIMES * tool_lists.most_bytes()


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it, cleaned for storing."""

    name: str
    title: str | None
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    idempotent: bool
    size: int = field(default=0, compare=False)
    """Bytes of the declaration."""


def listed(
    name: str, title: str | None, description: str | None, parameters: Mapping[str, Any], *, idempotent: bool
) -> Listed | None:
    """A tool of a server's list; None if its name or schema is not valid."""
    schema = storable_value(dict(parameters))
    if (
        not name
        or name != storable(name)
        or exact_json.deeper_than(_DEEPEST_SCHEMA, schema)
        or len(exact_json.dumps(schema)) > MOST_SCHEMA_BYTES
    ):
        return None
    shown = " ".join(storable(title or "").split())[:_LONGEST_TITLE]
    said = storable(description or "")[:MOST_DESCRIPTION]
    return Listed(name, shown or None, said, schema, idempotent, tool_lists.size(name, shown, said, schema))


def source(server: str, tool: str) -> str:
    return f"{SOURCE}{server}:{tool}"


def of_source(text: str) -> tuple[str, str]:
    """The server's name and its own name of the tool. Names of servers have no colon; names of tools may."""
    server, _, tool = text.removeprefix(SOURCE).partition(":")
    return server, tool


def unlisted(spec: AgentSpec) -> tuple[McpSpec, ...]:
    """The servers without tools in this definition, because listing them with the options' defaults failed."""
    known = {of_source(tool.source)[0] for tool in spec.tools if tool.source.startswith(SOURCE)}
    return tuple(server for server in spec.mcp if server.name not in known)


def tools(spec: AgentSpec, lists: Mapping[str, Sequence[Listed]], others: Iterable[str] = ()) -> tuple[ToolSpec, ...]:
    """The agent's tools from these lists, in the order of the file's servers; ``left_out`` counts the others.

    A tool has its server's name for it. A name that the agent already has, that two servers have, or that is one of
    ``others`` gets the server's name in front. Names that models cannot call are changed; names are unique.
    """
    taken = {tool.name for tool in spec.tools}.union(others)
    found, _ = _chosen(spec, lists)
    meant = Counter(_mended(tool.name) for _, tool in found)
    made: list[ToolSpec] = []
    for server, tool in found:
        name = _mended(tool.name)
        if name in taken or meant[name] > 1:
            name = _mended(f"{server.name}_{tool.name}")
        if name in taken:
            name = _told_apart(name, source(server.name, tool.name))
        taken.add(name)
        made.append(
            ToolSpec(
                name=name,
                source=source(server.name, tool.name),
                title=tool.title,
                description=tool.description,
                parameters=tool.parameters,
                expose=server.expose,
                timeout=server.timeout,
                idempotent=tool.idempotent,
            )
        )
    return tuple(made)


def left_out(spec: AgentSpec, lists: Mapping[str, Sequence[Listed]]) -> Mapping[str, int]:
    """The number of tools that match the patterns and exceed a limit, by server."""
    return _chosen(spec, lists)[1]


def _chosen(spec: AgentSpec, lists: Mapping[str, Sequence[Listed]]) -> tuple[list[tuple[McpSpec, Listed]], Mapping[str, int]]:
    found: list[tuple[McpSpec, Listed]] = []
    missed: Counter[str] = Counter()
    room = tool_lists.most_bytes() - sum(
        tool_lists.size(tool.name, tool.title, tool.description, tool.parameters) for tool in spec.tools
    )
    for server in spec.mcp:
        wanted = _wanted(server, lists.get(server.name, ()))
        count = 0
        for tool in wanted:
            if count == MOST_TOOLS or tool.size > room:
                missed[server.name] += 1
                continue
            found.append((server, tool))
            count += 1
            room -= tool.size
    return found, missed


def _wanted(server: McpSpec, listed: Iterable[Listed]) -> list[Listed]:
    """The tools that match the patterns, each once, although a server may list one twice."""
    by_name: dict[str, Listed] = {}
    for tool in listed:
        takes = any(fnmatchcase(tool.name, pattern) for pattern in server.include)
        if takes and not any(fnmatchcase(tool.name, pattern) for pattern in server.exclude):
            by_name.setdefault(tool.name, tool)
    return list(by_name.values())


def _mended(name: str) -> str:
    fit = _UNFIT.sub("_", name)
    return fit if len(fit) <= _LONGEST_NAME else _told_apart(fit, name)


def _told_apart(name: str, full: str) -> str:
    mark = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - len(mark) - 1]}_{mark}"
