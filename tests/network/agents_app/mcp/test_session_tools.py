"""What a run asks of MCP servers that nobody has seen the tools of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agents_app.mcp import connection, session_tools
from agents_app.mcp.catalogue import catalogue
from agents_app.mcp.pool import pool
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, McpSpec, OptionSpec
from tests.fakes.mcp_server import McpServer, serving
from tests.network.agents_app.mcp.test_catalogue import eventually


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[McpServer]:
    """A server that takes requests and answers none."""
    monkeypatch.setattr(connection, "_HANDSHAKE_SECONDS", 0.1)
    with serving() as server:
        server.may_answer.clear()
        yield server
        server.may_answer.set()
    catalogue.close()


def agent(server: McpServer) -> AgentSpec:
    at = McpSpec("harbour", server.url, headers={"X-Token": "{token}"})
    token = OptionSpec(name="token", type="secret")
    return AgentSpec("pilot", "demo:", mcp=(at,), options=(token,), limits=Limits(connect=0.1))


async def test_no_conversation_waits_for_a_server_that_is_known_to_hang(
    silent: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = agent(silent)
    catalogue.watch([spec])
    await asyncio.to_thread(eventually, lambda: bool(catalogue.faults(spec)))
    monkeypatch.setattr(session_tools, "pool", lambda: pytest.fail("it was asked"))
    found = await session_tools.discover(spec, {}, "a conversation", ())
    assert found.spec.instructions == "The tools of these MCP servers cannot be used at the moment: harbour."


async def test_a_session_with_a_secret_of_its_own_asks_for_itself(silent: McpServer) -> None:
    spec = agent(silent)
    catalogue.watch([spec])
    await asyncio.to_thread(eventually, lambda: bool(catalogue.faults(spec)))
    silent.may_answer.set()
    connection._HANDSHAKE_SECONDS = 30.0  # the fixture puts it back
    try:
        patient = replace(spec, limits=Limits(connect=30))
        found = await session_tools.discover(patient, {"token": "mine"}, "a conversation", ())
    finally:
        await pool().close()
    assert "read_file" in {tool.name for tool in found.spec.tools}
