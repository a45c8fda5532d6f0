"""The benchmark's watchers: what they count, and which servers give no figure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from ops import services
from ops.benchmark.load import LoadError, local
from ops.benchmark.watchers import V0_1, V1_0, Watcher, watching

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


def action(type_: str, content: str = "") -> str:
    said = {"type": type_, "turnId": "t", "content": content}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "action", "params": {"channel": "ahp-chat:/s", "action": said, "serverSeq": 1}},
        separators=(",", ":"),
    )


@asynccontextmanager
async def host(
    serve: Serve, asked: list[dict[str, Any]] | None = None, *, busy: int = 0, refused: str = ""
) -> AsyncIterator[int]:
    """Answers requests; after ``subscribe``, ``serve`` says something. ``busy``: so many upgrades are refused for the moment."""
    left = busy

    async def connect(request: web.Request) -> web.StreamResponse:
        nonlocal left
        assert request.headers["Authorization"] == "Bearer a key"
        if left:
            left -= 1
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            assert frame.type is WSMsgType.TEXT
            message = json.loads(frame.data)
            if asked is not None:
                asked.append(message)
            answer = {"error": {"code": -1, "message": "not here"}} if message["method"] == refused else {"result": {}}
            await socket.send_json({"jsonrpc": "2.0", "id": message["id"], **answer})
            if message["method"] == "subscribe":
                await serve(socket)
        return socket

    app = web.Application()
    app.router.add_get("/ahp", connect)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = services.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield port
    finally:
        await runner.cleanup()


async def nothing(_: web.WebSocketResponse) -> None:
    pass


async def one(port: int) -> Watcher:
    watcher = Watcher(local(port))
    watcher.expect()
    await watcher.open("a key", V1_0, "an-agent", "sess_1")
    return watcher


async def test_envelopes_and_tokens_are_counted_until_the_turn_ends() -> None:
    async def turn(socket: web.WebSocketResponse) -> None:
        await socket.send_str(action("chat/turnStarted"))
        await socket.send_json({"jsonrpc": "2.0", "method": "root/sessionAdded", "params": {"title": " token"}})
        await socket.send_str(action("chat/delta", " token token"))
        await socket.ping(b"still there?")
        # So long that its size takes eight bytes.
        await socket.send_str(action("chat/delta", " token" * 12_000))
        await socket.send_str(action("chat/turnComplete"))

    asked: list[dict[str, Any]] = []
    async with host(turn, asked) as port:
        watcher = await one(port)
        async with asyncio.timeout(30):
            await watcher.ended()
        watcher.close()
    assert [message["method"] for message in asked] == ["initialize", "subscribe"]
    assert asked[0]["params"]["protocolVersions"] == ["1.0.0"]
    assert asked[1]["params"] == {"channel": "ahp-chat:/sess_1"}
    assert (watcher.envelopes, watcher.watched.tokens, len(watcher.watched.arrivals)) == (4, 12_002, 2)


async def test_each_version_names_the_session_in_its_own_way() -> None:
    asked: list[dict[str, Any]] = []
    async with host(nothing, asked) as port, watching([local(port)], "a key", "an-agent", [("s1", V0_1), ("s2", V1_0)]) as found:
        assert len(found) == 2
    subscribed = [message["params"] for message in asked if message["method"] == "subscribe"]
    assert sorted(subscribed, key=str) == [{"channel": "ahp-chat:/s2"}, {"resource": "an-agent:/s1"}]


@pytest.mark.parametrize("method", ["initialize", "subscribe"])
async def test_a_refusal_is_no_figure(method: str) -> None:
    async with host(nothing, refused=method) as port:
        with pytest.raises(LoadError, match=f"{method} was refused: not here"):
            await one(port)


async def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.benchmark.watchers._BUSY_SECONDS", 0.01)
    async with host(nothing, busy=2) as port:
        (await one(port)).close()


async def test_a_connection_that_ends_is_no_figure() -> None:
    async def close(socket: web.WebSocketResponse) -> None:
        await socket.close(code=1013)

    async with host(close) as port:
        watcher = await one(port)
        with pytest.raises(LoadError, match="closed with 1013"):
            async with asyncio.timeout(30):
                await watcher.ended()
        watcher.expect()
        with pytest.raises(LoadError, match="closed with 1013"):
            await watcher.ended()


async def test_a_server_without_ahp_is_no_figure() -> None:
    with pytest.raises(LoadError, match="no connection"):
        await one(services.free_port())
