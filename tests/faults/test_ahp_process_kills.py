"""Webs and workers are killed (SIGKILL) at random moments while forty AHP clients work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets

import pytest

from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_steps import create_session
from tests.e2e.ahp_watcher import watching, without_clock
from tests.fakes.model_server import ModelServer
from tests.faults.ahp_clients import AhpClient, Observations, all_turns, check_turns
from tests.faults.cluster import Cluster

log = logging.getLogger(__name__)

CLIENTS, SESSIONS, KILLS = 40, 20, 5
SEED = int(os.environ.get("TEST_SEED") or secrets.randbelow(10**6))


async def _kill_processes(cluster: Cluster, chance: random.Random) -> list[str]:
    killed = []
    for _ in range(KILLS):
        # The random moment of the kill is what the test varies.
        await asyncio.sleep(chance.uniform(0.3, 2))
        victim, index = chance.choice(("web", "worker")), chance.randrange(2)
        killed.append(f"{victim} {index}")
        if victim == "web":
            await asyncio.to_thread(cluster.kill_web, index)
            # The other web may be killed next, so this one must be ready.
            await asyncio.to_thread(cluster.server.wait_ready, index)
        else:
            await asyncio.to_thread(cluster.kill_worker, index)
    return killed


@pytest.mark.slow
@pytest.mark.rule("R384", "R280", "R281", "R283", "R67", "R145", "R148")
async def test_forty_clients_lose_nothing_while_webs_and_workers_are_killed(cluster: Cluster, model: ModelServer) -> None:
    log.warning("TEST_SEED=%s", SEED)
    chance, observed, server = random.Random(SEED), Observations(), cluster.server
    async with watching(server, server.keys.alice, "harbour") as harbour:
        uris = [await create_session(harbour) for _ in range(SESSIONS)]
    clients = [
        AhpClient(server, model, observed, f"sailor-{number}", [uris[number % SESSIONS], *chance.sample(uris, 1)], SEED)
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.uris = list(dict.fromkeys(client.uris))
    await asyncio.gather(*(client.connect() for client in clients))
    stop = asyncio.Event()
    running = [asyncio.create_task(client.run(stop)) for client in clients]
    killing = asyncio.create_task(_kill_processes(cluster, chance))
    # A client that finds a fault ends early; then the test does not wait for the rest.
    await asyncio.wait([killing, *running], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    killed = await killing
    await asyncio.gather(*running)
    await asyncio.gather(*(client.wait_idle() for client in clients))
    log.info("seed %s: %s: %s", SEED, ", ".join(killed), observed)
    for client in clients:
        for uri in (*client.uris, ROOT):
            await client.client.check(uri)
    async with watching(server, server.keys.alice, "judge", ROOT, *uris) as judge:
        for uri in uris:
            check_turns(observed, uri, judge.state(uri), await all_turns(judge, uri))
        for client in clients:
            for uri in client.uris:
                assert without_clock(client.client.state(uri)) == without_clock(judge.state(uri))
    assert observed.accepted
    assert observed.replays
    for client in clients:
        await client.close()
