"""AHP 1.0: watches of files, on servers as they are deployed: changes by agents and other processes, a server that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.e2e import server as servers
from tests.e2e.ahp_mirror import ROOT, Mirror, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.server import Server
from tests.e2e.test_ahp_process_kills import back_at
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.slow

AT = "file:///watched/folder"


@pytest.fixture(params=servers.shapes())
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer, model: ModelServer
) -> Iterator[Server]:
    """A server that a test may kill; in production two webs."""
    directory = tmp_path_factory.mktemp("watched")
    environment = {"AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces")}
    webs = 2 if request.param == "production" else 1
    with servers.running(request.param, directory, _model_server.url, webs=webs, environment=environment) as one:
        yield one


async def told(client: Mirror, channel: str, *news: tuple[str, str]) -> None:
    await client.until(lambda: set(news) <= set(client.news(channel)), 60)


@pytest.mark.rule("V245", "V240", "V300", "V320")
async def test_a_watch_sees_agents_and_clients_everywhere_and_ends_with_its_server(pair: Server, model: ModelServer) -> None:
    script = model.script([steps.call("write_file", {"path": "src/greet.py", "content": "hello"}, id="w")], [steps.text("done")])
    elsewhere = len(pair.webs) - 1
    async with (
        mirroring(url_of(pair), pair.keys.alice, "here") as here,
        mirroring(url_of(pair, elsewhere), pair.keys.alice, "there") as there,
        watching(pair, pair.keys.alice, "old", index=elsewhere) as old,
    ):
        uri, chat = await here.create("coder", workingDirectories=[AT], config={"approval": "auto"})
        mine, others = await here.watch(AT, recursive=True), await there.watch(AT, recursive=True)
        turn = await here.start(chat, script)
        for client, channel in ((here, mine), (there, others)):
            await told(client, channel, (f"{AT}/src", "added"), (f"{AT}/src/greet.py", "added"))
        assert (await here.turn_ended(chat, turn))["state"] == "complete"
        await old.request("resourceWrite", {"uri": f"{AT}/old", "data": "", "encoding": "utf-8"})
        etag = (await there.request("resourceResolve", {"channel": ROOT, "uri": f"{AT}/src/greet.py"}))["etag"]
        write = {
            "channel": ROOT,
            "uri": f"{AT}/src/greet.py",
            "data": "!",
            "encoding": "utf-8",
            "mode": "append",
            "ifMatch": etag,
        }
        await there.request("resourceWrite", write)
        assert await here.code_of("resourceWrite", **write) == -32011
        for client, channel in ((here, mine), (there, others)):
            await told(client, channel, (f"{AT}/old", "added"), (f"{AT}/src/greet.py", "updated"))
            assert await client.code_of("subscribe", channel=others if channel == mine else mine) == -32008
        await here.check(chat)
        pair.webs[0].kill()
        await here.ended()
        if pair.shape == "embedded":
            await asyncio.to_thread(pair.start_web, 0)
            await asyncio.to_thread(pair.wait_ready)
        assert await back_at(here, pair, elsewhere) == "replay"
        assert mine not in here.mirrors
        again = await here.watch(AT)
        await here.request("resourceWrite", {"channel": ROOT, "uri": f"{AT}/new", "data": "", "encoding": "utf-8"})
        await told(here, again, (f"{AT}/new", "added"))
        await here.check(uri)
        if pair.shape == "production":
            await told(there, others, (f"{AT}/new", "added"))
        else:
            there.broken = None
