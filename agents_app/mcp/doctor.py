"""Checks the MCP servers of agents for an operator: their tools, or their faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from agents_app import options, tool_lists
from agents_app.mcp import listing
from agents_app.mcp.access import Access, accesses
from agents_app.mcp.catalogue import MOST_PROGRAMS
from agents_app.mcp.faults import McpFault
from agents_app.mcp.listing import Listed
from agents_app.spec import AgentSpec, McpSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one server. ``usable`` False: the operator has to act."""

    agent: str
    server: str
    words: str
    usable: bool


def look(specs: Iterable[AgentSpec], seconds: float | None = None) -> list[Finding]:
    """Ask all servers once, concurrently, using the options' defaults. TimeoutError if they take longer than ``seconds``."""

    async def ask() -> list[Finding]:
        async with asyncio.timeout(seconds):
            return await _look(list(specs))

    return asyncio.run(ask())


async def _look(specs: list[AgentSpec]) -> list[Finding]:
    starts = asyncio.Semaphore(MOST_PROGRAMS)
    return [finding for findings in await asyncio.gather(*(_of_agent(spec, starts) for spec in specs)) for finding in findings]


async def _of_agent(spec: AgentSpec, starts: asyncio.Semaphore) -> list[Finding]:
    by_name = accesses(spec, options.effective(spec, {}), "doctor")
    asked = await asyncio.gather(*(_ask(by_name[server.name], starts) for server in spec.mcp))
    answers = list(zip(spec.mcp, asked, strict=True))
    lists = {server.name: answer.tools for server, answer in answers if isinstance(answer, _Answer)}
    names = {tool.source: tool.name for tool in listing.tools(spec, lists)}
    left_out = listing.left_out(spec, lists)
    return [
        _finding(spec, server, by_name[server.name], answer, names, left_out.get(server.name, 0)) for server, answer in answers
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of one server. ``cut``: it lists more tools than the limits allow."""

    protocol: str
    tools: tuple[Listed, ...]
    cut: bool


async def _ask(access: Access, starts: asyncio.Semaphore) -> _Answer | McpFault:
    from agents_app.mcp.connection import Connection

    async with starts if access.program is not None else contextlib.nullcontext():
        connection = Connection(access)
        try:
            await connection.open()
            return _Answer(connection.protocol, connection.tools, connection.cut)
        except McpFault as fault:
            return fault
        finally:
            await connection.close()


def _finding(
    spec: AgentSpec, server: McpSpec, access: Access, answer: _Answer | McpFault, names: dict[str, str], left_out: int
) -> Finding:
    if isinstance(answer, McpFault):
        wanted = options.unset_secrets(spec, _values(server)) if answer.kind == "refused" else []
        if wanted:
            words = f"{access.host}: needs each session's own {', '.join(wanted)}; its tools show when a turn runs"
            return Finding(spec.name, server.name, words, usable=True)
        return Finding(spec.name, server.name, f"{access.host}: {answer.detail}", usable=False)
    taken = [_called(tool, names.get(listing.source(server.name, tool.name))) for tool in answer.tools]
    shown = [each for each in taken if each]
    words = f"{access.host}: OK (MCP {answer.protocol}, tools {', '.join(shown) or 'none'}"
    left = len(answer.tools) - len(shown)
    words += f"; {left} not taken)" if left else ")"
    if left_out:
        words += (
            f"; {left_out} left out: an agent takes {listing.MOST_TOOLS} tools of a server, and {tool_lists.most_bytes():,} bytes"
            " of tools in all (AGENTHOST_TOOL_LIST_BYTES)"
        )
    if answer.cut:
        words += f"; it lists more than {listing.MOST_LISTED:,} tools or {listing.most_listed_bytes():,} bytes; not all are read"
    # A server without a matching tool is most likely a mistake in the patterns.
    return Finding(spec.name, server.name, words, usable=bool(shown) and not left_out and not answer.cut)


def _values(server: McpSpec) -> list[str]:
    return [*server.headers.values(), *(server.program.env.values() if server.program is not None else ())]


def _called(tool: Listed, name: str | None) -> str:
    if name is None:
        return ""
    return name if name == tool.name else f"{name} (its {tool.name})"
