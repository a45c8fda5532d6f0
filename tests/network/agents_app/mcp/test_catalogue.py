"""What a process knows of its MCP servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents_app import registry, tool_lists
from agents_app.mcp import catalogue as module
from agents_app.mcp import listing
from agents_app.mcp.catalogue import catalogue
from agents_app.mcp.connection import Connection as McpConnection
from agents_app.spec import AgentSpec, McpSpec, OptionSpec, ToolSpec
from tests.fakes.mcp_server import McpServer, serving
from tests.mcp_lists import wait_for_lists


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wait_for_lists(monkeypatch)
    yield
    catalogue.close()


@pytest.fixture(params=[False, True], ids=["2026", "before 2026"])
def server(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    with serving(old=request.param) as found:
        yield found


def agent(*servers: McpSpec, **fields: object) -> AgentSpec:
    return replace(AgentSpec("pilot", "demo:", mcp=servers), **fields)  # type: ignore[arg-type]


def eventually(holds: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


def names() -> set[str]:
    found = registry.find("pilot")
    assert found is not None
    return {tool.name for tool in found.tools}


def test_the_first_look_at_an_agent_has_its_servers_tools(server: McpServer) -> None:
    with registry.use([agent(McpSpec("harbour", server.url))]):
        found = registry.find("pilot")
        assert found is not None
        tool = found.tool("read_file")
        assert tool == ToolSpec(
            name="read_file",
            source="mcp:harbour:read_file",
            title="Reads a file",
            description="Reads one file.",
            parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            idempotent=True,
        )
        if not server.old:
            # The library's server itself writes an older schema in another order.
            assert list(tool.parameters) == ["type", "properties", "required"]
        assert not found.tools[1].idempotent
        # All pages of the list.
        assert len(found.tools) == len(server.offers)


def test_between_two_changes_the_same_definition_is_handed_out(server: McpServer) -> None:
    with registry.use([agent(McpSpec("harbour", server.url))]):
        assert registry.find("pilot") is registry.find("pilot")
        assert registry.agents() is registry.agents()
        assert registry.agents()["pilot"] is registry.find("pilot")


def test_a_tool_that_a_server_adds_is_there_when_it_has_said_so(server: McpServer) -> None:
    with registry.use([agent(McpSpec("harbour", server.url))]):
        assert "brand_new" not in names()
        before, all_before = registry.find("pilot"), registry.agents()
        eventually(lambda: server.listened)
        server.add("brand_new")
        eventually(lambda: "brand_new" in names())
        assert registry.find("pilot") is not before
        assert registry.agents() is not all_before


def test_a_server_that_goes_down_keeps_its_tools_and_is_asked_again(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.2)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    spec = agent(McpSpec("harbour", server.url))
    with registry.use([spec]):
        known = names()
        server.stop()
        eventually(lambda: "harbour" in catalogue.faults(spec))
        assert catalogue.faults(spec)["harbour"].kind == "unreachable"
        assert names() == known
        server.offers.pop("slow")
        server.start()
        eventually(lambda: not catalogue.faults(spec))
        eventually(lambda: names() == known - {"slow"})


def test_a_server_that_is_down_at_first_costs_a_moment_at_most() -> None:
    gone = McpServer()
    with registry.use([agent(McpSpec("harbour", gone.url), tools=(ToolSpec("own", "builtin:calculator"),))]):
        assert names() == {"own"}


def test_nobody_waits_long_for_a_server_that_hangs_and_nobody_twice(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.may_answer.clear()
    monkeypatch.setattr(module, "FIRST_WAIT_SECONDS", 6.0)
    with registry.use([agent(McpSpec("harbour", server.url))]):
        waits = []
        for _ in range(2):
            began = time.monotonic()
            assert names() == set()
            waits.append(time.monotonic() - began)
        assert waits[0] >= 5.9
        assert waits[1] < 5.9
        server.may_answer.set()
        eventually(lambda: "read_file" in names())


async def test_an_event_loop_never_waits(server: McpServer) -> None:
    server.may_answer.clear()
    with registry.use([agent(McpSpec("harbour", server.url))]):
        began = time.monotonic()
        assert names() == set()
        assert time.monotonic() - began < module.FIRST_WAIT_SECONDS / 2


def test_the_catalogue_asks_with_the_options_own_values(server: McpServer) -> None:
    server.tokens = {"default": "the operator"}
    offered = (OptionSpec("secret", "token", default="default"),)
    with registry.use([agent(McpSpec("harbour", server.url, {"Authorization": "Bearer {token}"}), options=offered)]):
        assert "read_file" in names()
        assert {each.authorization for each in server.requests} == {"Bearer default"}


def test_a_header_that_nobody_gave_a_value_is_not_sent(server: McpServer) -> None:
    offered = (OptionSpec("secret", "token"),)
    with registry.use([agent(McpSpec("harbour", server.url, {"X-Token": "{token}"}), options=offered)]):
        assert "read_file" in names()
        assert all("x-token" not in each.headers for each in server.requests)


def test_a_server_that_wants_each_sessions_secret_has_no_tools_here(server: McpServer) -> None:
    server.tokens = {"hers": "Ada"}
    spec = agent(McpSpec("harbour", server.url, {"Authorization": "Bearer {token}"}), options=(OptionSpec("secret", "token"),))
    with registry.use([spec]):
        assert names() == set()
        assert catalogue.faults(spec)["harbour"].kind == "refused"


def test_two_agents_with_one_server_ask_it_once(server: McpServer) -> None:
    one = agent(McpSpec("harbour", server.url))
    with registry.use([one, replace(one, name="mate")]):
        assert registry.agents()["mate"].tools == registry.agents()["pilot"].tools
        openings = [each for each in server.requests if each.method == "POST"]
        lists = -(-len(server.offers) // server.page_size)
        assert len(openings) <= lists + 4


def test_the_lists_are_kept_by_a_thread_that_ends(server: McpServer) -> None:
    with registry.use([agent(McpSpec("harbour", server.url))]):
        names()
        catalogue.close()
        assert "mcp-lists" not in {thread.name for thread in threading.enumerate()}


def test_a_server_with_more_tools_than_anybody_reads_gives_some_of_them_and_the_operator_is_told(
    server: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    """510 tools of 110 KB each: all of them in every request and in every /meta would be 54 MB."""
    server.offer_many(510, 90_000)
    with registry.use([agent(McpSpec("harbour", server.url))]):
        found = registry.find("pilot")
        assert found is not None
        assert 0 < len(found.tools) < 510
        declared = [tool_lists.size(tool.name, tool.title, tool.description, tool.parameters) for tool in found.tools]
        assert sum(declared) <= tool_lists.most_bytes()
        assert registry.servers_cut() == 1
        # No more is read than could be chosen from.
        (entry,) = catalogue._entries.values()
        assert entry.tools is not None
        assert sum(tool.size for tool in entry.tools) <= listing.most_listed_bytes()
    assert "lists more than 2000 tools or 2097152 bytes of them" in caplog.text
    assert "of the MCP server harbour are left out" in caplog.text
    assert "AGENTHOST_TOOL_LIST_BYTES" in caplog.text


def test_a_server_whose_tools_are_all_served_is_not_cut(server: McpServer) -> None:
    with registry.use([agent(McpSpec("harbour", server.url))]):
        assert "read_file" in names()
        assert registry.servers_cut() == 0


def test_a_server_whose_list_met_something_unexpected_is_asked_again(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    learn, failures = module.Catalogue._learn, [ValueError("words of a list")]

    def fail_once(*args: Any, **kwargs: Any) -> None:
        if failures:
            raise failures.pop()
        learn(*args, **kwargs)

    monkeypatch.setattr(module.Catalogue, "_learn", fail_once)
    with registry.use([agent(McpSpec("harbour", server.url))]):
        eventually(lambda: "read_file" in names())
    assert not failures


def test_a_server_is_asked_again_when_the_task_that_follows_it_has_ended(
    server: McpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    # At the old age a client notices so that its server is gone.
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.2)
    close, broken = McpConnection.close, threading.Event()

    async def breaks_once(connection: McpConnection) -> None:
        await close(connection)
        if not broken.is_set():
            broken.set()
            raise ValueError

    with registry.use([agent(McpSpec("harbour", server.url))]):
        assert "slow" in names()
        eventually(lambda: server.listened)
        monkeypatch.setattr(McpConnection, "close", breaks_once)
        server.stop()
        eventually(broken.is_set)
        server.offers.pop("slow")
        server.start()
        eventually(lambda: "slow" not in names())
    assert "task_ended task='mcp list of harbour': ValueError" in caplog.text


def test_servers_are_asked_again_when_the_thread_that_asks_them_has_ended(
    server: McpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)

    def breaks() -> None:
        raise SystemExit

    with registry.use([agent(McpSpec("harbour", server.url))]):
        assert "brand_new" not in names()
        eventually(lambda: server.listened)
        thread, loop = catalogue._thread, catalogue._loop
        assert thread is not None
        assert loop is not None
        loop.call_soon_threadsafe(breaks)
        thread.join(60)
        assert not thread.is_alive()
        server.add("brand_new")
        eventually(lambda: "brand_new" in names())
    assert "thread_ended thread='mcp-lists': SystemExit" in caplog.text
