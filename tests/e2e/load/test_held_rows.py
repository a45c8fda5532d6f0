"""Long row locks of one tenant do not delay turns of another tenant on the same processes.

Eight runs of alice end while SQL holds all her rows of one kind; each session has an active AHP client, so that the end
is more than the journal's. Bob's turns are compared with those of a quiet moment in the same run.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, run_turn, text_of
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client, turn_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

RUNS = 8
"""As many as a worker has threads for the database by default."""

HERS = "(select id from sessions_app_session where tenant_id = t.id)"
KINDS = {
    "tenant": ["select 1 from sessions_app_tenant x where x.id = t.id for update"],
    "session": ["select 1 from sessions_app_session x where x.tenant_id = t.id for no key update"],
    "session and its key": ["select 1 from sessions_app_session x where x.tenant_id = t.id for update"],
    "position": [f"select 1 from session_tail x where x.session_id in {HERS} or x.session_id = -t.id for update"],
    "turn": ["select 1 from sessions_app_turn x where x.tenant_id = t.id for update"],
    "call": ["select 1 from sessions_app_toolcall x where x.tenant_id = t.id for update"],
    "client": [
        "select 1 from sessions_app_sessionclient x where x.tenant_id = t.id for update",
        "select 1 from sessions_app_clientpresence x where x.tenant_id = t.id for update",
    ],
    "counter": ["select 1 from tenant_counter x where x.tenant_id = t.id for update"],
}
"""Locks as taken by another transaction of the server, or by a person in psql."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Server]:
    """Two webs and one worker."""
    if "production" not in servers.shapes():
        pytest.skip("SQLite has one lock for all")
    environment = {"AGENTHOST_LEASE_SECONDS": "", "AGENTHOST_RENEW_SECONDS": ""}
    directory = tmp_path_factory.mktemp("held")
    with servers.running("production", directory, _model_server.url, webs=2, environment=environment) as server:
        yield server


@contextmanager
def held(server: Server, slug: str, kind: str) -> Iterator[None]:
    """A transaction that has all of a tenant's rows of one kind, and does not end."""
    with server.database() as connection, connection.transaction():
        (tenant,) = connection.execute("select id from sessions_app_tenant where slug = %s", (slug,)).fetchone() or (0,)
        count = 0
        for sql in KINDS[kind]:
            # The tenant's number in place of the alias: a subquery cannot lock through it.
            count += len(connection.execute(sql.replace("t.id", str(tenant))).fetchall())
        assert count
        yield


class Busy:
    """Alice's runs, each inside a tool; her client is active in each of their sessions."""

    def __init__(self, server: Server, model: ModelServer, gate: str) -> None:
        self.server, self.model, self.gate = server, model, gate
        self.prompt = model.script([steps.call("block", {"gate": gate})], [steps.text("through")])
        self.client = server.client(server.keys.alice)
        self._threads, self._requests = ThreadPoolExecutor(RUNS), ThreadPoolExecutor(3 * RUNS)

    async def begin(self, owner: Watcher) -> None:
        agent = {"name": "pilot", "tools": [{"name": "block", "trust": True}]}
        sessions = [self.client.create(agent) for _ in range(RUNS)]
        for session in sessions:
            uri = f"pilot:/{session}"
            await owner.subscribe(uri)
            claim = {"clientId": owner.client_id, "tools": []}
            echo = await owner.echo(
                await owner.dispatch({"type": "session/activeClientChanged", "session": uri, "activeClient": claim})
            )
            assert "rejectionReason" not in echo
        self.idle = [self.client.create() for _ in range(3 * RUNS)]
        self.turns = [self._threads.submit(self._turn, session) for session in sessions]
        async with asyncio.timeout(60):
            while self.server.tools.executions("block", gate=self.gate) < RUNS:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.02)

    def _turn(self, session: str) -> str:
        with closing(Client(self.server.origin(), self.server.keys.alice)) as client:
            outcome = client.turn(session, self.prompt, stream="delta")
        return f"{outcome.stop}: {outcome.text}"

    def let_go(self) -> None:
        """The tools return, and on both webs more requests wait for her rows than her share of threads can serve."""
        self.server.tools.open_gate(self.gate)
        self.asking = [self._requests.submit(self._ask, number, session) for number, session in enumerate(self.idle)]

    def _ask(self, number: int, session: str) -> int:
        with closing(Client(self.server.origin(number % 2), self.server.keys.alice)) as client:
            return client.post(f"/sessions/{session}/turns", turn_body("me too")).status_code

    def asked(self) -> int:
        """The numbers of requests to the model and of responses."""
        return sum(request.state != "open" for request in self.model.requests_of(self.prompt))

    async def ends(self) -> list[str]:
        return list(await asyncio.gather(*(asyncio.wrap_future(turn) for turn in self.turns)))


class Other:
    """Bob: a turn over AAP on each web, one over AHP whose session he is active in, and one that he cancels."""

    def __init__(self, server: Server, model: ModelServer, watcher: Watcher) -> None:
        self.model, self.watcher = model, watcher
        self.clients = [server.client(server.keys.bob, index) for index in range(2)]
        self.seconds: list[float] = []

    async def act(self) -> None:
        for act in (self._over_aap, self._over_ahp, self._cancels):
            began = time.monotonic()
            await act()
            self.seconds.append(time.monotonic() - began)

    async def _over_aap(self) -> None:
        def both() -> None:
            for client in self.clients:
                assert client.turn(client.create(), "and I?", stream="delta").text == "echo: and I?"

        await asyncio.to_thread(both)

    async def _over_ahp(self) -> None:
        uri = await create_session(self.watcher, activeClient={"clientId": self.watcher.client_id, "tools": []})
        assert text_of(await run_turn(self.watcher, uri, "and I?")) == "echo: and I?"

    async def _cancels(self) -> None:
        def cancelled() -> None:
            client, gate = self.clients[0], f"cancelled {next(_numbers)}"
            session = client.create()
            prompt = self.model.script([steps.text("so far"), steps.gate(gate)])
            with client.stream(session, prompt) as stream:
                stream.until("text_delta")
                assert client.cancel(session)["cancelled"]
                assert stream.rest()[-1].name == "turn_stop"
            self.model.open_gate(gate)

        await asyncio.to_thread(cancelled)


_numbers = itertools.count()


@pytest.mark.slow
@pytest.mark.rule("A3", "A78", "R385")
@pytest.mark.parametrize("kind", KINDS)
async def test_rows_that_one_tenants_runs_wait_for_do_not_slow_another_tenants_turns(
    pair: Server, model: ModelServer, kind: str
) -> None:
    busy = Busy(pair, model, f"before the {kind} {next(_numbers)}")
    keys = pair.keys
    async with watching(pair, keys.alice, "hers") as hers, watching(pair, keys.bob, "his", index=1) as his:
        bob = Other(pair, model, his)
        await busy.begin(hers)
        await bob.act()  # The first of all warms up.
        bob.seconds.clear()
        for _ in range(4):
            await bob.act()
        quiet, bob.seconds = bob.seconds, []
        with held(pair, "alice", kind):
            busy.let_go()
            if kind == "session":
                # All of her model calls have ended; only the end of each turn is left.
                model.wait_until(lambda: busy.asked() == 2 * RUNS, what="all of her models are asked again")
            for _ in range(8):
                await bob.act()
        assert await busy.ends() == ["end_turn: through"] * RUNS
        # Requests that waited too long got a 503 with Retry-After.
        assert {request.result(90) for request in busy.asking} <= {200, 503}
    assert statistics.median(bob.seconds) <= 2 * statistics.median(quiet) + 0.1, (kind, quiet, bob.seconds)
    assert max(bob.seconds) <= 2 * max(quiet) + 1, (kind, quiet, bob.seconds)
