"""The benchmark's AHP connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from ops import services
from ops.benchmark.ahp import AhpClient, AhpConnections
from ops.benchmark.load import LoadError


@asynccontextmanager
async def host(asked: list[dict[str, Any]], refused: str = "") -> AsyncIterator[str]:
    """Answers every request, after a notification; refuses one method."""

    async def serve(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer a key"
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            message = json.loads(frame.data)
            asked.append(message)
            await socket.send_json({"jsonrpc": "2.0", "method": "notification", "params": {}})
            answer = {"error": {"code": -1, "message": "not here"}} if message["method"] == refused else {"result": {}}
            await socket.send_json({"jsonrpc": "2.0", "id": message["id"], **answer})
        return socket

    app = web.Application()
    app.router.add_get("/ahp", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    port = services.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_each_connection_watches_a_session_of_its_own() -> None:
    asked: list[dict[str, Any]] = []
    async with host(asked) as origin, AhpConnections([origin], "a key") as connections:
        await connections.open("first", "an-agent")
        await connections.open("second", "an-agent")
    assert [message["method"] for message in asked] == ["initialize", "createSession", "subscribe"] * 2
    created, watched = asked[1]["params"], asked[2]["params"]
    assert created["provider"] == "an-agent"
    assert created["session"] == watched["resource"] != asked[4]["params"]["session"]
    assert asked[0]["params"]["clientId"] != asked[3]["params"]["clientId"]


@pytest.mark.parametrize("method", ["initialize", "createSession", "subscribe"])
async def test_a_refusal_is_no_figure(method: str) -> None:
    async with host([], refused=method) as origin, AhpConnections([origin], "a key") as connections:
        with pytest.raises(LoadError, match=f"{method} was refused: not here"):
            await connections.open("first", "an-agent")


async def test_a_server_without_ahp_is_no_figure() -> None:
    async with AhpConnections([f"http://127.0.0.1:{services.free_port()}"], "a key") as connections:
        with pytest.raises(LoadError, match="refused"):
            await connections.open("first", "an-agent")


@asynccontextmanager
async def echoing_host(*, closes: bool = False) -> AsyncIterator[str]:
    """Terminals whose state has a prompt already, and that echo what is typed; or the connection ends then."""

    async def serve(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            message = json.loads(frame.data)
            if message["method"] != "dispatchAction":
                state = {"content": [{"type": "unclassified", "value": "~$ "}]}
                await socket.send_json({"jsonrpc": "2.0", "id": message["id"], "result": {"snapshot": {"state": state}}})
                continue
            if closes:
                await socket.close(code=1013)
                break
            typed = message["params"]["action"]
            for terminal, data in (("other:/1", "not here"), (typed["terminal"], typed["data"])):
                action = {"type": "terminal/data", "terminal": terminal, "data": data}
                await socket.send_json({"jsonrpc": "2.0", "method": "action", "params": {"serverSeq": 1, "action": action}})
        return socket

    app = web.Application()
    app.router.add_get("/ahp", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    port = services.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_a_terminals_output_is_counted_from_its_snapshot_on() -> None:
    async with echoing_host() as origin, AhpClient(origin, "a key") as client:
        terminal = await client.create_terminal()
        await client.until_shown(terminal, "$ ")
        await client.type_into(terminal, "abc")
        await client.until_shown(terminal, "abc")
        assert client.screen(terminal).size == len("~$ abc")
        assert client.screen(terminal).last == "~$ abc"


async def test_a_connection_that_ends_is_no_figure() -> None:
    async with echoing_host(closes=True) as origin, AhpClient(origin, "a key") as client:
        terminal = await client.create_terminal()
        await client.type_into(terminal, "a")
        with pytest.raises(LoadError, match="ended with 1013"):
            await client.until_shown(terminal, "a")
        with pytest.raises(LoadError, match="ended with 1013"):
            await client.request("ping", {})
