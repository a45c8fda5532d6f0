"""Two hundred concurrent streams and runs: their use of database connections while they wait."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from tests.e2e import sse
from tests.e2e.client import client_tool, turn_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

CROWD = 200
PRESSING = 20
ROUNDS = 4
# Two processes with pools of 20, the journal's own connections, listeners; far from one for each stream or run.
MOST_BACKENDS = 50


def backends(server: Server) -> tuple[int, int]:
    """The server's database connections: all, and those that hold a transaction open."""
    with server.database() as connection:
        row = connection.execute(
            "select count(*), count(*) filter (where state like 'idle in transaction%%') from pg_stat_activity"
            " where datname = current_database() and application_name <> 'the test'"
        ).fetchone()
    assert row is not None
    total, in_transaction = row
    assert isinstance(total, int)
    assert isinstance(in_transaction, int)
    return total, in_transaction


async def events_of(answer: aiohttp.ClientResponse) -> AsyncIterator[sse.SseEvent]:
    parser = sse.SseParser()
    async for chunk in answer.content.iter_any():
        for event in parser.feed(chunk):
            yield event
    parser.end()


@pytest.fixture
def crowd(server: Server) -> Callable[[], aiohttp.ClientSession]:
    def open_session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            base_url=server.origin(),
            headers={"Authorization": f"Bearer {server.keys.alice}"},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=300),
        )

    return open_session


@pytest.mark.rule("A100", "A53", "A78")
async def test_two_hundred_open_streams_and_waiting_runs_hold_no_connection_each(
    server: Server, model: ModelServer, crowd: Callable[[], aiohttp.ClientSession]
) -> None:
    gate = f"crowd {server.shape}"
    prompt = model.script([steps.text("wait "), steps.gate(gate), steps.text("over")])
    asking = model.script([steps.call("mine", {})], [steps.text("fine")])
    standing = asyncio.Semaphore(0)

    async with crowd() as http:

        async def create() -> str:
            body = {"agent": {"name": "echo"}, "tools": [client_tool("mine")]}
            async with http.post("/aap/v3/sessions", json=body) as answer:
                assert answer.status == 201
                made = await answer.json()
            return str(made["sessionId"])

        async def follow(session: str) -> list[sse.SseEvent]:
            seen = []
            async with http.post(f"/aap/v3/sessions/{session}/turns", json=turn_body(prompt, stream="delta")) as answer:
                assert answer.status == 200
                async for event in events_of(answer):
                    if event.name == "text_delta" and event.data["delta"].startswith("wait"):
                        standing.release()
                    seen.append(event)
            return seen

        async def leave_waiting(session: str) -> str:
            async with http.post(f"/aap/v3/sessions/{session}/turns", json=turn_body(asking)) as answer:
                return str((await answer.json())["stopReason"])

        sessions = [await create() for _ in range(CROWD)]
        followers = [asyncio.create_task(follow(session)) for session in sessions]
        for _ in range(CROWD):
            await asyncio.wait_for(standing.acquire(), 180)
        states = Counter(request.state for request in model.requests_of(prompt))
        assert states == {"open": CROWD}

        # Runs at their limit and streams open: other requests are answered before any of them ends.
        async with http.get("/aap/v3/sessions") as answer:
            assert answer.status == 200
        other = await create()
        assert {request.state for request in model.requests_of(prompt)} == {"open"}
        if server.shape == "production":
            # One sample may meet a sweep in its transaction; a run that holds a connection would be in every sample.
            until = time.monotonic() + 60
            while (seen := backends(server))[1]:
                assert time.monotonic() < until, f"{seen[1]} transactions are held open"
                await asyncio.sleep(0.05)
            assert seen[0] <= MOST_BACKENDS

        model.open_gate(gate)
        for follower in followers:
            events = await asyncio.wait_for(follower, 180)
            sse.check_turn(events)
            assert sse.rebuilt(events) == [{"role": "assistant", "content": "wait over"}]
        assert await leave_waiting(other) == "tool_use"
        assert await asyncio.gather(*[leave_waiting(session) for session in sessions[:50]]) == ["tool_use"] * 50
        if server.shape == "production":
            assert backends(server)[0] <= MOST_BACKENDS


@pytest.mark.rule("A3", "A100")
async def test_many_clients_of_one_tenant_do_not_delay_another(
    server: Server, model: ModelServer, crowd: Callable[[], aiohttp.ClientSession]
) -> None:
    prompt = model.script([steps.pause(0.05), steps.text(*["x"] * 30)])
    stopped = asyncio.Event()

    async with crowd() as http:
        ended = 0

        async def press() -> None:
            nonlocal ended
            async with http.post("/aap/v3/sessions", json={"agent": {"name": "echo"}}) as answer:
                session = (await answer.json())["sessionId"]
            while not stopped.is_set():
                async with http.post(f"/aap/v3/sessions/{session}/turns", json=turn_body(prompt)) as answer:
                    assert answer.status == 200
                    json.loads(await answer.read())
                ended += 1

        pressing = [asyncio.create_task(press()) for _ in range(PRESSING)]
        bob = server.client(server.keys.bob)
        meanwhile = []
        try:
            for number in range(5):
                before = ended
                session = await asyncio.to_thread(bob.create)
                outcome = await asyncio.to_thread(bob.turn, session, f"hello {number}")
                meanwhile.append(ended - before)
                assert outcome.text == f"echo: hello {number}"
        finally:
            stopped.set()
            await asyncio.gather(*pressing)
        assert ended > 0
        # The limit is relative to the current speed of the machine.
        assert sorted(meanwhile)[2] <= ROUNDS * PRESSING, meanwhile
