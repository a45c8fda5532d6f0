"""Revoking a key ends its streams, connections and runs on every process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest

from sessions_app.ahp.client.client import Client as AhpClient
from tests.e2e import server as servers
from tests.e2e.ahp_watcher import url_of
from tests.e2e.client import Client, turn_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

KEY_ENDED = b": this key is no longer valid\n"
GENEROUS_SECONDS = 30.0
"""A second is promised; the machine that runs the tests is shared."""


@pytest.fixture
def two_webs(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> Iterator[Server]:
    if "production" not in servers.shapes():
        pytest.skip("needs DATABASE_URL")
    with servers.running("production", tmp_path_factory.mktemp("keys"), model.url, webs=2) as server:
        yield server


class _Answer:
    """A response that is read in a thread while the test continues."""

    def __init__(self, client: httpx.AsyncClient, method: str, url: str, body: object = None) -> None:
        self.said, self.ended_at, self.news = b"", 0.0, asyncio.Event()
        self.reading = asyncio.create_task(self._read(client, method, url, body))

    async def _read(self, client: httpx.AsyncClient, method: str, url: str, body: object) -> None:
        async with client.stream(method, url, json=body) as response:
            assert response.status_code == 200
            self.news.set()
            async for chunk in response.aiter_raw():
                self.said += chunk
        self.ended_at = time.monotonic()


async def _everything_ends(server: Server, model: ModelServer, webs: int) -> None:
    key, other_key = await asyncio.to_thread(server.make_keys, "ends/one/*/", "ends/other/*/")
    paths = [f"{server.origin(index)}/aap/v3/sessions" for index in range(webs)]
    script = model.script([steps.text("a"), steps.gate("never")])
    anybody: Client = server.client(key)
    session, other = await asyncio.to_thread(anybody.create), await asyncio.to_thread(anybody.create)
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as mine,
        httpx.AsyncClient(headers={"Authorization": f"Bearer {other_key}"}, timeout=60) as theirs,
    ):
        streams = [_Answer(mine, "POST", f"{paths[0]}/{session}/turns", turn_body(script, stream="delta"))]
        document = _Answer(mine, "POST", f"{paths[-1]}/{other}/turns", turn_body(script))
        await asyncio.to_thread(model.wait_gate, "never", times=2)
        joined = [f"{path}/{session}/events/stream?stream=" for path in paths]
        streams += [_Answer(mine, "GET", url + query) for url in joined for query in ("delta", "message&follow=true")]
        onlooker = _Answer(theirs, "GET", f"{paths[-1]}/{session}/events/stream?stream=delta")
        for each in (*streams, onlooker):
            assert await asyncio.wait_for(each.news.wait(), 60)
        connections = [AhpClient(url_of(server, index), key, f"client {index}") for index in range(webs)]
        for connection in connections:
            await connection.open()
            await connection.initialize()
        await asyncio.to_thread(server.manage, "revoke_key", key[:11])
        revoked_at = time.monotonic()
        for connection in connections:
            assert await connection.ended() == 1008
        async with asyncio.timeout(60):
            for stream in (*streams, document, onlooker):
                await stream.reading
                assert stream.ended_at - revoked_at < GENEROUS_SECONDS
        for stream in streams:
            assert stream.said.endswith(KEY_ENDED)
            assert b"turn_stop" not in stream.said
        assert document.said.strip() == b""
        assert b"turn_stop" in onlooker.said
        assert (await mine.get(paths[-1])).status_code == 401
    for request in model.requests_of(script):
        assert await asyncio.to_thread(model.wait_ended, request) == "closed"


@pytest.mark.rule("A2", "R8")
async def test_a_revoked_key_ends_all_its_streams_and_connections_and_the_runs_it_began(
    server: Server, model: ModelServer
) -> None:
    await _everything_ends(server, model, webs=1)


@pytest.mark.slow
@pytest.mark.rule("A2", "R8")
async def test_also_those_at_another_web(two_webs: Server, model: ModelServer) -> None:
    await _everything_ends(two_webs, model, webs=2)
