"""kill -9 of webs and workers at random moments under forty AHP clients."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_steps import made
from tests.e2e.ahp_watcher import watching, without_clock
from tests.fakes.model_server import ModelServer
from tests.faults.ahp_clients import Sailor, Told, check_turns
from tests.faults.cluster import Cluster

log = logging.getLogger(__name__)

CLIENTS, SESSIONS, DEATHS = 40, 20, 5
SEED = int(os.environ.get("TEST_SEED") or secrets.randbelow(10**6))


async def _die(cluster: Cluster, chance: random.Random) -> list[str]:
    died = []
    for _ in range(DEATHS):
        # A moment is not waited for, it is what is tried.
        await asyncio.sleep(chance.uniform(0.3, 2))
        victim, index = chance.choice(("web", "worker")), chance.randrange(2)
        died.append(f"{victim} {index}")
        if victim == "web":
            await asyncio.to_thread(cluster.kill_web, index)
            # The other one may be next, and somebody has to be there.
            await asyncio.to_thread(cluster.server.wait_ready, index)
        else:
            await asyncio.to_thread(cluster.kill_worker, index)
    return died


async def _all_turns(client: Any, uri: str) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    while True:
        before = {"before": turns[0]["id"]} if turns else {}
        page = await client.request("fetchTurns", {"session": uri, "limit": 200, **before})
        turns = page["turns"] + turns
        if not page["hasMore"]:
            return turns


@pytest.mark.slow
@pytest.mark.rule("R384", "R280", "R281", "R283", "R67", "R145", "R148")
async def test_forty_clients_lose_nothing_while_webs_and_workers_die(cluster: Cluster, model: ModelServer) -> None:
    log.warning("TEST_SEED=%s", SEED)
    chance, told, server = random.Random(SEED), Told(), cluster.server
    async with watching(server, server.keys.alice, "harbour") as harbour:
        uris = [await made(harbour) for _ in range(SESSIONS)]
    sailors = [
        Sailor(server, model, told, f"sailor-{number}", [uris[number % SESSIONS], *chance.sample(uris, 1)], SEED)
        for number in range(CLIENTS)
    ]
    for sailor in sailors:
        sailor.uris = list(dict.fromkeys(sailor.uris))
    await asyncio.gather(*(sailor.come() for sailor in sailors))
    stop = asyncio.Event()
    living = [asyncio.create_task(sailor.live(stop)) for sailor in sailors]
    dying = asyncio.create_task(_die(cluster, chance))
    # A client that has found a fault ends before it is told to; nobody has to wait for the rest then.
    await asyncio.wait([dying, *living], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    died = await dying
    await asyncio.gather(*living)
    await asyncio.gather(*(sailor.settled() for sailor in sailors))
    log.info("seed %s: %s: %s", SEED, ", ".join(died), told)
    for sailor in sailors:
        for uri in (*sailor.uris, ROOT):
            await sailor.client.judge(uri)
    async with watching(server, server.keys.alice, "judge", ROOT, *uris) as judge:
        for uri in uris:
            check_turns(told, uri, judge.state(uri), await _all_turns(judge, uri))
        for sailor in sailors:
            for uri in sailor.uris:
                assert without_clock(sailor.client.state(uri)) == without_clock(judge.state(uri))
    assert told.accepted
    assert told.replays
    for sailor in sailors:
        await sailor.leave()
