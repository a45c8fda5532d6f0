"""Lists the tools of MCP servers that only a session's own option values can list, at the start of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agents_app import options
from agents_app.mcp import listing
from agents_app.mcp.access import Access, accesses
from agents_app.mcp.catalogue import OWNER, catalogue
from agents_app.mcp.faults import McpFault
from agents_app.mcp.listing import Listed
from agents_app.mcp.pool import pool
from agents_app.spec import AgentSpec, McpSpec

WAIT_SECONDS = 10.0
"""The most that a run's start waits. A server that answers later is used in the next run."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """An agent with the discovered tools. ``own``: those of this session only, which are enabled without a client."""

    spec: AgentSpec
    own: frozenset[str]


async def discover(
    spec: AgentSpec, stored_options: Mapping[str, str], owner: str, of_clients: Iterable[str], tenant: int | None = None
) -> Discovered:
    """Ask the servers without tools in ``spec``. Its instructions name those that do not answer.

    ``of_clients``: the names of clients' tools, which take precedence over discovered ones.
    """
    values = options.effective(spec, stored_options)
    theirs = accesses(spec, values, owner, tenant)
    everybodys = accesses(spec, options.effective(spec, {}), owner, tenant)
    servers = listing.unlisted(spec)
    looked_at = accesses(spec, values, OWNER)
    # A server that has just not responded to the catalogue would delay each run in the same way.
    asked = tuple(server for server in servers if not catalogue.hangs(looked_at[server.name]))
    lists: dict[str, tuple[Listed, ...] | None] = dict.fromkeys(server.name for server in servers)
    lists |= zip((server.name for server in asked), await _asked(asked, theirs), strict=True)
    known = {name: tools for name, tools in lists.items() if tools is not None}
    made = listing.tools(spec, known, of_clients)
    own = {tool.name for tool in made if theirs[_server(tool.source)].key != everybodys[_server(tool.source)].key}
    missing = [name for name, tools in lists.items() if tools is None]
    instructions = spec.instructions
    if missing:
        instructions = f"{instructions}\n\n{_MISSING} {', '.join(missing)}.".strip()
    return Discovered(replace(spec, tools=(*spec.tools, *made), instructions=instructions), frozenset(own))


_MISSING = "The tools of these MCP servers cannot be used at the moment:"


async def _asked(servers: tuple[McpSpec, ...], by_name: Mapping[str, Access]) -> list[tuple[Listed, ...] | None]:
    return await asyncio.gather(*(_listed(by_name[server.name]) for server in servers))


async def _listed(access: Access) -> tuple[Listed, ...] | None:
    try:
        return await pool().list_tools(access, WAIT_SECONDS)
    except McpFault:
        return None


def _server(source: str) -> str:
    return listing.of_source(source)[0]
