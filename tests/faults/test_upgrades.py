"""Upgrades from the previous release, and back: its processes and those of this release on one database, under load."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.services import Postgres, folder, free_port
from sessions_app.core.records import database_checks
from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session
from tests.e2e.ahp_watcher import watching
from tests.e2e.client import Client, grant
from tests.e2e.server import Process, Server
from tests.e2e.sse import SseEvent
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults import ahp_clients, previous_release
from tests.faults import cluster as clusters
from tests.faults.ahp_clients import AhpClient
from tests.faults.balancer import Balancer
from tests.faults.cluster import Cluster, wait_for, wait_log
from tests.faults.strict_clients import Follower, Observed, Speaker
from tests.paths import ROOT

log = logging.getLogger(__name__)

SPEAKERS, SAILORS = 6, 3
CHOSEN = [
    f"tests/e2e/{name}.py"
    for name in (
        *("test_aap_v3_turns", "test_aap_v3_tools", "test_aap_v3_streams", "test_aap_v3_sessions", "test_aap_v2_turns"),
        *("test_ahp_turns", "test_ahp_1_turns", "test_ahp_delivery", "test_ahp_steering", "test_both"),
    )
]
"""Tests that use most of the tables, as far as the previous release has them."""

pytestmark = pytest.mark.skipif("production" not in servers.shapes(), reason="needs Postgres")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return previous_release.checkout(tmp_path_factory.mktemp("previous") / "release")


def test_the_previous_release_is_the_one_whose_migrations_are_listed() -> None:
    listed = previous_release.git("ls-tree", "--name-only", previous_release.name(), "sessions_app/migrations/")
    if listed is None:
        pytest.skip(f"the previous release, {previous_release.name()}, is not in this checkout's history")
    names = re.findall(r"^sessions_app/migrations/(\d{4}_\w+)\.py$", listed.decode(), re.MULTILINE)
    assert {f"sessions_app.{name}" for name in names} == database_checks.released_migrations()


# --- its own tests on the new schema ---


@pytest.fixture
def migrated_template(tmp_path: Path) -> Iterator[Path]:
    """A folder with an installation that this release has migrated, which the previous release's tests copy."""
    template = servers._shared_template("production", tmp_path / "shared" / "production")
    try:
        yield tmp_path / "shared"
    finally:
        given = os.environ["DATABASE_URL"]
        servers.drop_database(given, template.owner["DATABASE_URL"])
        servers.drop_role(given, template.owner["AGENTHOST_RUNTIME_ROLE"])


@pytest.mark.slow
def test_the_previous_release_passes_its_tests_on_the_schema_of_this_one(previous: Path, migrated_template: Path) -> None:
    chosen = [name for name in CHOSEN if (previous / name).exists()]
    environment = {**os.environ, servers.SHARED: str(migrated_template), "PYTHONPATH": str(previous)}
    done = subprocess.run(
        [previous_release.python_of(previous), "-m", "pytest", *chosen, "-q", "-k", "production", "-m", "not slow"],
        cwd=previous,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    log.warning("%s: %s tests passed on this schema", previous_release.name(), passed)
    assert int(passed) > 100


# --- a rolling upgrade and the way back ---


@pytest.fixture
def old_cluster(previous: Path, tmp_path: Path, _model_server: ModelServer) -> Iterator[Cluster]:
    with folder() as home:
        postgres = Postgres(home)
        postgres.start()
        try:
            with clusters.running(tmp_path, _model_server.url, postgres, root=previous) as cluster:
                yield cluster
        finally:
            postgres.stop()


class Waiting:
    """A turn that waits for a permission."""

    def __init__(self, client: Client, model: ModelServer, number: int) -> None:
        self.client, self.call = client, f"asked-{number}"
        prompt = model.script(
            [steps.call("order_rope", {"metres": number}, id=self.call)], [steps.text(f"ordered {number}")], name=f"rope {number}"
        )
        self.session = client.create({"name": "pilot", "tools": [{"name": "order_rope"}]})
        self.text = f"ordered {number}"
        assert client.turn(self.session, prompt).stop == "tool_use"

    def answer(self) -> None:
        outcome = self.client.turn(self.session, grant(self.call))
        assert (outcome.stop, outcome.text) == ("end_turn", self.text)


class LongAnswer:
    """A turn whose answer streams while every process is replaced."""

    def __init__(self, client: Client, model: ModelServer, name: str) -> None:
        self.model, self.gate = model, f"long {name}"
        self.events: list[SseEvent] = []
        begun = threading.Event()
        prompt = model.script([steps.text("before "), steps.gate(self.gate), steps.text("after")], name=f"{name} is long")
        session = client.create()

        def read() -> None:
            with client.stream(session, prompt) as stream:
                stream.until("text_delta")
                begun.set()
                stream.rest()
                self.events = stream.seen

        self.thread = threading.Thread(target=read, daemon=True)
        self.thread.start()
        assert begun.wait(60)

    def finish(self) -> None:
        self.model.open_gate(self.gate)
        self.thread.join(60)
        assert self.events, "its stream was cut"
        assert self.events[-1].data == {"stopReason": "end_turn"}
        assert "".join(event.data["delta"] for event in self.events if event.name == "text_delta") == "before after"


class Load:
    """All clients: strict ones of AAP, and those of AHP, which reconnect."""

    def __init__(self, server: Server, balancer: Balancer, model: ModelServer) -> None:
        self.model, self.balancer, self.key = model, balancer, server.keys.alice
        self.front = dataclasses.replace(server, ports=[balancer.port, balancer.port])
        self.observed = Observed()
        self.at_sea = ahp_clients.Observations()
        self.speakers = [Speaker(self.client(), model, self.observed, number) for number in range(SPEAKERS)]
        self.follower = Follower(self.client(), self.speakers[0].session, self.observed)
        self.sailors: list[AhpClient] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.balancer.port}", self.key)

    async def begin(self) -> None:
        self.follower.start()
        assert await asyncio.to_thread(self.follower.connected.wait, 60)
        for speaker in self.speakers:
            speaker.start()
        async with watching(self.front, self.key, "harbour") as harbour:
            uris = [await create_session(harbour) for _ in range(SAILORS)]
        self.sailors = [
            AhpClient(self.front, self.model, self.at_sea, f"sailor-{number}", [uri], number) for number, uri in enumerate(uris)
        ]
        await asyncio.gather(*(sailor.connect() for sailor in self.sailors))
        self._tasks = [asyncio.create_task(sailor.run(self._stop)) for sailor in self.sailors]

    def check(self) -> None:
        assert not self.balancer.dropped, self.balancer.dropped
        assert not self.observed.faults, self.observed.faults
        assert self.follower.failure is None, self.follower.failure
        for task in self._tasks:
            if task.done():
                task.result()

    async def wait_turns(self, more: int) -> None:
        """Until this many more turns of each stream mode and of AHP have ended."""
        before = {mode: self.observed.turns[mode] for mode in ("delta", "message", "none")}
        at_sea = len(self.at_sea.accepted)

        def ended() -> bool:
            self.check()
            return len(self.at_sea.accepted) > at_sea and all(self.observed.turns[mode] >= n + more for mode, n in before.items())

        await asyncio.to_thread(wait_for, ended, f"{more} more turns in each mode", 120.0)

    async def end(self) -> None:
        for speaker in self.speakers:
            speaker.ended.set()
        for speaker in self.speakers:
            await asyncio.to_thread(speaker.join, 90)
        await asyncio.to_thread(self.follower.wait_texts, self.speakers[0].texts)
        self._stop.set()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*(sailor.wait_idle() for sailor in self.sailors))
        for sailor in self.sailors:
            (uri,) = sailor.uris
            await sailor.client.check(uri)
            ahp_clients.check_turns(self.at_sea, uri, sailor.client.state(uri), await ahp_clients.all_turns(sailor.client, uri))
            await sailor.close()
        self.check()


def replace_web(server: Server, balancer: Balancer, index: int) -> Process:
    """Take the web out of the balancer, end it, and start another one."""
    old, port = server.webs[index], server.ports[index]
    server.ports[index] = free_port()
    wait_for(lambda: balancer.has_left(port), "the balancer sends nothing more to the old web")
    old.terminate()
    server.start_web(index)
    server.wait_ready(index)
    return old


async def replace_processes(cluster: Cluster, load: Load, root: Path) -> None:
    """One process after the other, as docs/upgrading.md says; each old one ends by itself with 0."""
    cluster.server.root = root
    long = await asyncio.to_thread(LongAnswer, load.client(), load.model, root.name)
    old: list[Process] = []
    for index in range(2):
        old.append(await asyncio.to_thread(replace_web, cluster.server, load.balancer, index))
        await load.wait_turns(1)
    for index in range(2):
        old.append(await asyncio.to_thread(cluster.replace_worker, index))
        await load.wait_turns(1)
    old.append(cluster.beat)
    cluster.beat.terminate()
    await asyncio.to_thread(wait_log, cluster.start_beat(), "beat is ready")
    await asyncio.to_thread(long.finish)
    for process in old:
        assert await asyncio.to_thread(process.popen.wait, 120) == 0, process.log.read_text()[-3000:]


@pytest.mark.slow
@pytest.mark.rule("A78", "A98", "A120", "R384")
async def test_an_upgrade_under_load_and_the_way_back_fail_no_request_and_lose_no_turn(
    old_cluster: Cluster, model: ModelServer, previous: Path
) -> None:
    cluster, server = old_cluster, old_cluster.server
    with ExitStack() as stack:
        balancer = stack.enter_context(Balancer(lambda: server.ports))
        load = Load(server, balancer, model)
        waiting = [await asyncio.to_thread(Waiting, load.client(), model, number) for number in range(2)]
        await load.begin()
        await load.wait_turns(2)

        server.root = ROOT
        await asyncio.to_thread(servers.migrate, server)
        assert database_version(cluster) == newest_migration()
        await load.wait_turns(2)
        await replace_processes(cluster, load, ROOT)
        await asyncio.to_thread(waiting[0].answer)
        waiting.append(await asyncio.to_thread(Waiting, load.client(), model, 2))
        await load.wait_turns(2)
        upgraded = dict(load.observed.turns)

        await replace_processes(cluster, load, previous)
        for each in waiting[1:]:
            await asyncio.to_thread(each.answer)
        await load.wait_turns(2)
        await load.end()
    await asyncio.to_thread(wait_for, lambda: cluster.turns_running() == 0, "every turn has ended")
    ended = cluster.ask("select state, count(*) from sessions_app_turn group by state")
    states = {str(state): int(str(count)) for state, count in ended}
    figures = {
        "requests": balancer.requests,
        "requests without an answer": balancer.dropped,
        "webs passed over": balancer.passed_over,
        "turns of AAP at the end of the upgrade": upgraded,
        "turns of AAP": dict(load.observed.turns),
        "follower": f"{len(load.follower.events)} events, {load.observed.reconnects} reconnects",
        "AHP": str(load.at_sea),
        "turns in the database": states,
    }
    log.warning("upgrade from %s and back: %s", previous_release.name(), json.dumps(figures, indent=1))
    assert balancer.dropped == []
    assert states.keys() <= {"done", "cancelled"}, states


def newest_migration() -> str:
    return max(name for app, name in database_checks.shipped() if app == "sessions_app")


def database_version(cluster: Cluster) -> object:
    ((name,),) = cluster.ask("select max(name) from django_migrations where app = 'sessions_app'")
    return name
