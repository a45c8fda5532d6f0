"""Looks at the MCP servers of agents as an operator wants to hear of them: what they offer, or what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from agents_app import options
from agents_app.mcp import listing
from agents_app.mcp.access import Access, accesses
from agents_app.mcp.faults import McpFault
from agents_app.mcp.listing import Listed
from agents_app.spec import AgentSpec, McpSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of asking one server. ``usable`` False: somebody has to do something about it."""

    agent: str
    server: str
    words: str
    usable: bool


def look(specs: Iterable[AgentSpec]) -> list[Finding]:
    """Ask every server once, all at the same time, with the values that the options have by themselves."""
    return asyncio.run(_look(list(specs)))


async def _look(specs: list[AgentSpec]) -> list[Finding]:
    return [finding for findings in await asyncio.gather(*(_of_agent(spec) for spec in specs)) for finding in findings]


async def _of_agent(spec: AgentSpec) -> list[Finding]:
    by_name = accesses(spec, options.effective(spec, {}), "doctor")
    asked = await asyncio.gather(*(_ask(by_name[server.name]) for server in spec.mcp))
    lists = {server.name: answer[1] for server, answer in zip(spec.mcp, asked, strict=True) if isinstance(answer, tuple)}
    names = {tool.source: tool.name for tool in listing.tools(spec, lists)}
    return [_finding(spec, server, by_name[server.name], answer, names) for server, answer in zip(spec.mcp, asked, strict=True)]


async def _ask(access: Access) -> tuple[str, tuple[Listed, ...]] | McpFault:
    from agents_app.mcp.connection import Connection

    connection = Connection(access)
    try:
        await connection.open()
        return connection.protocol, connection.tools
    except McpFault as fault:
        return fault
    finally:
        await connection.close()


def _finding(
    spec: AgentSpec, server: McpSpec, access: Access, answer: tuple[str, tuple[Listed, ...]] | McpFault, names: dict[str, str]
) -> Finding:
    if isinstance(answer, McpFault):
        wanted = _own_secrets(spec, server) if answer.kind == "refused" else []
        if wanted:
            words = f"{access.host}: needs each session's own {', '.join(wanted)}; its tools show when a turn runs"
            return Finding(spec.name, server.name, words, usable=True)
        return Finding(spec.name, server.name, f"{access.host}: {answer.detail}", usable=False)
    protocol, tools = answer
    taken = [_called(tool, names.get(listing.source(server.name, tool.name))) for tool in tools]
    shown = [each for each in taken if each]
    words = f"{access.host}: OK (MCP {protocol}, tools {', '.join(shown) or 'none'}"
    left = len(tools) - len(shown)
    words += f"; {left} not taken)" if left else ")"
    # A server of which an agent takes nothing is most likely a slip in its patterns.
    return Finding(spec.name, server.name, words, usable=bool(shown))


def _called(tool: Listed, name: str | None) -> str:
    if name is None:
        return ""
    return name if name == tool.name else f"{name} (its {tool.name})"


def _own_secrets(spec: AgentSpec, server: McpSpec) -> list[str]:
    """The secrets in the server's headers that only a session can have."""
    by_name = {option.name: option for option in spec.options}
    found: dict[str, None] = {}
    for value in server.headers.values():
        for name in options.places(value, by_name):
            option = by_name.get(name)
            if option is not None and option.type == "secret" and not option.default:
                found[name] = None
    return list(found)
