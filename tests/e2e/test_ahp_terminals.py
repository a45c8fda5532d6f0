"""Terminals of real servers: embedded, and with a terminal service of its own. Starts its own servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessions_app.ahp.client.client import Client
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e import server as servers
from tests.e2e.ahp_mirror import V0_9, mirroring
from tests.e2e.ahp_terminals import create_terminal, has_exited, listed, screen_of, shows, type_into
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.client import user
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import pause, text

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module", params=servers.shapes())
def _server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("terminals")
    environment = {
        "AGENTHOST_TERMINALS": "on",
        "AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces"),
        "AGENTHOST_TENANT_TERMINALS": "120",
        # One slot in eight is for other tenants.
        "AGENTHOST_TERMINAL_CONCURRENCY": "120",
        "AGENTHOST_TERMINAL_BYTES_PER_SECOND": str(64 * 1024**2),
    }
    webs = 2 if request.param == "production" else 1
    with servers.running(request.param, directory, _model_server.url, webs=webs, environment=environment) as one:
        yield one


@pytest.fixture
def server(_server: Server, model: ModelServer) -> Server:
    """A server whose processes a test may kill."""
    _server.restore()
    if _server.shape == "production" and not any(each.alive for each in _server.terminals):
        _server.start_terminals()
    return _server


async def until_available(server: Server) -> None:
    """Wait until terminals can be created."""
    async with asyncio.timeout(120), httpx.AsyncClient(trust_env=False, timeout=60) as client:
        while (await client.get(server.origin() + "/readyz")).json().get("terminals") != "on":  # noqa: ASYNC110  # a page, not an event
            await asyncio.sleep(0.05)


MARK = "the-program-of-a-killed-service"


async def until_programs(count: int) -> None:
    """Wait until this number of processes with the mark is there."""

    def found() -> int:
        there = 0
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                there += each.read_bytes().startswith(MARK.encode())
        return there

    async with asyncio.timeout(30):
        while await asyncio.to_thread(found) != count:  # noqa: ASYNC110  # other processes, no event
            await asyncio.sleep(0.05)


@pytest.mark.rule("R300", "R303", "R308", "R312", "R384", "R386")
async def test_a_terminal_from_its_start_to_its_end(server: Server) -> None:
    await until_available(server)
    uri = "term:/life"
    async with (
        watching(server, server.keys.alice, "me") as client,
        watching(server, server.keys.alice, "other", index=len(server.webs) - 1) as other,
    ):
        await create_terminal(client, uri)
        await other.subscribe(uri)
        await type_into(client, uri, "echo $((6 * 7)); env; id -u; cat /proc/1/environ; ls /\n")
        await shows(client, uri, "42")
        await shows(other, uri, "42")
        await client.until(lambda: any(part.get("exitCode") is not None for part in client.state(uri)["content"]))
        for secret in (*server.environment.values(), server.keys.alice):
            if len(secret) > 20:
                assert secret not in screen_of(client, uri)
        assert "AGENTHOST_" not in screen_of(client, uri)
        assert client.state(uri)["supportsCommandDetection"]
        await type_into(client, uri, "exit 5\n")
        await client.until(lambda: listed(client)[uri].get("exitCode") == 5)
        for each in (client, other):
            await each.check(uri)
            await each.check(ROOT)
        await client.request("disposeTerminal", {"terminal": uri})
        await other.until(lambda: uri not in listed(other))


@pytest.mark.rule("V1", "V54", "V56", "V230", "V231", "V300", "R386")
async def test_clients_of_three_versions_use_a_terminal_through_any_process(server: Server) -> None:
    await until_available(server)
    uri, key, last = "ahp-terminal:/shared", server.keys.alice, len(server.webs) - 1
    async with (
        mirroring(url_of(server), key, "one") as one,
        mirroring(url_of(server, last), key, "nine", version=V0_9) as nine,
        watching(server, key, "old", index=last) as old,
    ):
        await create_terminal(nine, uri)
        everyone: list[Client] = [one, nine, old]
        for client in everyone:
            await client.subscribe(uri)
        for number, client in enumerate(everyone):
            await type_into(client, uri, f"echo by-$(({number} + 10))\n")
            for other in everyone:
                await shows(other, uri, f"by-{number + 10}\r\n")
        # A process dies with the connections of two of them; the program goes on, if it was not a part of that process.
        if server.shape == "production":
            server.webs[last].kill()
            await type_into(one, uri, "echo meanwhile-$((1))\n")
            await shows(one, uri, "meanwhile-1\r\n")
            server.restore()
            for client in everyone[1:]:
                await client.ended()
                assert await client.reconnect() == "replay"
                await shows(client, uri, "meanwhile-1\r\n")
        await type_into(old, uri, "exit 6\n")
        for client in everyone:
            await client.until(partial(has_exited, client, uri))
        ended = {"status": "exited", "exitCode": 6}
        for newer in (one, nine):
            await newer.until(partial(_is_listed_with, newer, uri, ended))
            assert newer.state(uri)["lifecycle"] == ended
            await newer.check(uri)
            await newer.check(newer.version.root)
        await old.check(uri)
        await old.check(ROOT)
        assert screen_of(one, uri) == screen_of(nine, uri) == screen_of(old, uri)
        await one.request("disposeTerminal", {"channel": uri})
        for client in everyone:
            await client.until(partial(_is_gone, client, uri))


def _is_listed_with(client: Client, uri: str, lifecycle: dict[str, Any]) -> bool:
    return bool(listed(client)[uri]["lifecycle"] == lifecycle)


def _is_gone(client: Client, uri: str) -> bool:
    return uri not in listed(client)


@pytest.mark.slow
@pytest.mark.rule("R308", "R384", "V231")
async def test_a_killed_service_ends_its_terminals_without_a_code(server: Server) -> None:
    await until_available(server)
    uri = "term:/killed"
    async with (
        watching(server, server.keys.alice, "me") as client,
        mirroring(url_of(server), server.keys.alice, "newer") as newer,
    ):
        await create_terminal(client, uri)
        await newer.subscribe(uri)
        await type_into(client, uri, f"echo up$((1)); exec -a {MARK} sleep 1000\n")
        await shows(client, uri, "up1")
        await until_programs(1)
        if server.shape == "production":
            server.terminals[-1].kill()
        else:
            server.webs[0].kill()
            await client.ended()
            server.restore()
            await client.reconnect()
            await newer.ended()
            await newer.reconnect()
        # Its lease is five seconds; then a worker finds it.
        await shows(client, uri, "has ended", 60)
        await client.until(lambda: has_exited(client, uri))
        assert "exitCode" not in listed(client)[uri]
        await newer.until(partial(_is_listed_with, newer, uri, {"status": "exited"}))
        assert newer.state(uri)["lifecycle"] == {"status": "exited"}
        await until_programs(0)
        await client.check(uri)
        await newer.check(uri)
        if server.shape == "production":
            with pytest.raises(RPCError, match="no terminal service is running"):
                await client.request("createTerminal", {"terminal": "term:/none", "claim": {"kind": "client", "clientId": "me"}})


@pytest.mark.rule("R308")
async def test_a_stopped_service_says_so(server: Server) -> None:
    if server.shape == "embedded":
        pytest.skip("its clients are disconnected at the same time")
    await until_available(server)
    uri = "term:/stopped"
    async with watching(server, server.keys.alice, "me") as client:
        await create_terminal(client, uri)
        await type_into(client, uri, "echo up$((1))\n")
        await shows(client, uri, "up1")
        server.terminals[-1].popen.send_signal(signal.SIGTERM)
        await shows(client, uri, "[The terminal service was stopped.]")
        await client.until(lambda: has_exited(client, uri))
        assert await asyncio.to_thread(server.terminals[-1].popen.wait, 30) == 0


@pytest.mark.slow
@pytest.mark.rule("R384", "R303")
async def test_terminals_work_while_redis_is_frozen_and_while_it_is_back(server: Server) -> None:
    if server.redis is None:
        pytest.skip("an embedded server has no Redis")
    await until_available(server)
    uri = "term:/frozen"
    pid = server.redis.pid
    assert pid is not None
    async with watching(server, server.keys.alice, "me") as client:
        await create_terminal(client, uri)
        await type_into(client, uri, "echo before$((1))\n")
        await shows(client, uri, "before1")
        os.kill(pid, signal.SIGSTOP)
        try:
            for number in range(3):
                await type_into(client, uri, f"echo during$(({number} + 10))\n")
                await shows(client, uri, f"during{number + 10}", 60)
            await create_terminal(client, "term:/second")
            await shows(client, "term:/second", "$ ", 60)
        finally:
            os.kill(pid, signal.SIGCONT)
        await type_into(client, uri, "echo after$((2))\n")
        await shows(client, uri, "after2")
        assert [screen_of(client, uri).count(f"during{number}\r\n") for number in (10, 11, 12)] == [1, 1, 1]
        await client.check(uri)


@pytest.mark.slow
@pytest.mark.rule("R311", "R385")
async def test_a_flood_neither_fills_the_memory_nor_stops_another_tenant(server: Server) -> None:
    await until_available(server)
    async with watching(server, server.keys.alice, "me") as client, watching(server, server.keys.bob, "bob") as bob:
        await create_terminal(client, "term:/flood")
        await create_terminal(bob, "term:/calm")
        await type_into(bob, "term:/calm", "stty -echo; cat\n")
        service = (server.terminals or server.webs)[-1].popen.pid
        before = memory_of(service)
        await type_into(client, "term:/flood", "head -c 50000000 /dev/zero | base64; echo done$((1))\n")
        await client.until(lambda: len(screen_of(client, "term:/flood")) > 1_000_000, 30)
        slowest = 0.0
        for number in range(40):
            began = time.monotonic()
            await type_into(bob, "term:/calm", f"mark{number}.\n")
            await shows(bob, "term:/calm", f"mark{number}.")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 2
        assert memory_of(service) - before < 64 * 1024
        await client.request("disposeTerminal", {"terminal": "term:/flood"})


@pytest.mark.slow
async def test_fifty_megabytes_of_output_leave_another_tenants_streamed_turn_alone(server: Server, model: ModelServer) -> None:
    await until_available(server)
    bob = server.client(server.keys.bob)
    session = bob.create()
    words = [f"word{number} " for number in range(100)]
    script = model.script([step for word in words for step in (text(word), pause(0.05))])

    def streamed() -> tuple[str, float]:
        """The whole text of bob's turn, and the longest time between two of its events."""
        longest, said, before = 0.0, "", time.monotonic()
        with bob.stream(session, user(script)) as events:
            for event in events:
                longest, before = max(longest, time.monotonic() - before), time.monotonic()
                said += event.data.get("delta", "") if event.name == "text_delta" else ""
        return said, longest

    async with watching(server, server.keys.alice, "me") as client:
        # Nobody subscribes to it: a viewer that cannot keep up is disconnected, and all of it is stored without one too.
        claim = {"kind": "client", "clientId": "me"}
        await client.request("createTerminal", {"terminal": "term:/fast", "claim": claim})
        turn = asyncio.create_task(asyncio.to_thread(streamed))
        await type_into(client, "term:/fast", "head -c 37500000 /dev/zero | base64; exit 5\n")
        said, longest = await turn
        assert said == "".join(words)
        assert longest < 3
        # The program has printed all of it, and what it printed last is on the screen.
        await client.until(lambda: listed(client)["term:/fast"].get("exitCode") == 5, 120)
        await client.subscribe("term:/fast")
        assert screen_of(client, "term:/fast").endswith("AAAA\r\nexit\r\n")
        await client.request("disposeTerminal", {"terminal": "term:/fast"})


@pytest.mark.slow
async def test_a_hundred_terminals_of_a_service_each_answer(server: Server) -> None:
    await until_available(server)
    uris = [f"term:/{number}" for number in range(100)]
    async with watching(server, server.keys.alice, "me", ROOT) as client, watching(server, server.keys.bob, "bob") as bob:
        for uri in uris:
            await create_terminal(client, uri)
        for number, uri in enumerate(uris):
            await type_into(client, uri, f"echo number$(({number} + 1000))\n")
        for number, uri in enumerate(uris):
            await shows(client, uri, f"number{number + 1000}", 120)
        # Another tenant still gets one.
        await create_terminal(bob, "term:/own")
        await type_into(bob, "term:/own", "echo mine$((1))\n")
        await shows(bob, "term:/own", "mine1", 60)
        for uri in uris:
            await client.request("disposeTerminal", {"terminal": uri})
        await client.until(lambda: not listed(client).keys() & set(uris), 60)


def memory_of(pid: int) -> int:
    """In KiB."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])
