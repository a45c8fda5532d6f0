"""Tools of MCP servers that only a run can find: nobody could list them with the values that options have by themselves."""

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
"""What a run's start waits at most; a server that answers later is there for the next run."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """An agent with what was found, and which of its tools nobody could enable: those that are this session's alone."""

    spec: AgentSpec
    own: frozenset[str]


async def discover(spec: AgentSpec, stored_options: Mapping[str, str], owner: str, of_clients: Iterable[str]) -> Discovered:
    """Ask the servers of which ``spec`` has no tools. Those that cannot be asked are named in its instructions.

    ``of_clients``: names of clients' tools, which could not know of what is found here.
    """
    values = options.effective(spec, stored_options)
    theirs, everybodys = accesses(spec, values, owner), accesses(spec, options.effective(spec, {}), owner)
    servers = listing.unlisted(spec)
    looked_at = accesses(spec, values, OWNER)
    # One that has just let the catalogue wait would let each conversation wait, too, and again with every half minute.
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
