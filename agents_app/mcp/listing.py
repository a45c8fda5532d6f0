"""The tools that MCP servers list, as tools of an agent: which it takes, what they are called there. Pure."""

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
"""The most tools that are read of one server's list; the operator's patterns then choose among them."""
_LISTED_TIMES = 4
MOST_SCHEMA_BYTES = 100_000
MOST_DESCRIPTION = 20_000
_LONGEST_NAME = 64
_LONGEST_TITLE = 200
_DEEPEST_SCHEMA = 50
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def most_listed_bytes() -> int:
    """The most bytes of declarations that are read of one server's list."""
    return _LISTED_TIMES * tool_lists.most_bytes()


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it, fit to be stored."""

    name: str
    title: str | None
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    idempotent: bool
    size: int = field(default=0, compare=False)
    """Bytes of its declaration."""


def listed(
    name: str, title: str | None, description: str | None, parameters: Mapping[str, Any], *, idempotent: bool
) -> Listed | None:
    """A tool of a server's list; None if no agent can have it."""
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
    """The server and its own name of the tool. Servers' names hold no colon, tools' names may."""
    server, _, tool = text.removeprefix(SOURCE).partition(":")
    return server, tool


def unlisted(spec: AgentSpec) -> tuple[McpSpec, ...]:
    """The servers of which this definition has no tools: nobody could list them with the options' defaults."""
    known = {of_source(tool.source)[0] for tool in spec.tools if tool.source.startswith(SOURCE)}
    return tuple(server for server in spec.mcp if server.name not in known)


def tools(spec: AgentSpec, lists: Mapping[str, Sequence[Listed]], others: Iterable[str] = ()) -> tuple[ToolSpec, ...]:
    """The agent's tools out of these lists, by the server's name, in the file's order; ``left_out`` counts the others.

    A tool is called what its server calls it. A name that the agent has already, or that two servers have, gets the
    server's name in front; so does one of ``others``, who were there first. Whatever no model could call is mended; two
    servers never share a name.
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
    """Each once, though a server may list one twice."""
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
