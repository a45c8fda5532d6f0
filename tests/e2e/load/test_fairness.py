"""Fairness: while one tenant uses many resources, the first turn of another tenant is served without delay.

Nothing here is told by a clock. The crowd stands at gates and behind a lock that stay closed until the other tenant
has had its answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.client import Client, turn_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

PLACES, THREADS = 16, 4
MOST_OF_THE_PLACES = 14
"""The last eighth of a worker's places is for tenants of which nothing runs."""
CROWD = 1000 if os.environ.get("AGENTHOST_TEST_THOROUGH") else 300


PATIENT = """
[[agents]]
name = "patient"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-patient"
history = ["full"]
stream = ["delta", "none"]
limits = {{ first_output = 3000, run = 3600 }}
"""


@pytest.fixture(scope="module", params=servers.shapes())
def narrow(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    """One worker with few places, so that a crowd fills them."""
    environment = {
        "AGENTHOST_LEASE_SECONDS": "",
        "AGENTHOST_RENEW_SECONDS": "",
        "AGENTHOST_WORKER_CONCURRENCY": str(PLACES),
        "AGENTHOST_TOOL_THREADS": str(THREADS),
    }
    directory = tmp_path_factory.mktemp("narrow")
    agents = agents_file.write(directory / "narrow.toml", _model_server.url)
    agents.write_text(agents.read_text() + PATIENT.format(model=_model_server.url))
    environment["AGENTHOST_AGENTS_FILE"] = str(agents)
    with servers.running(request.param, directory, _model_server.url, environment=environment) as server:
        yield server


def post_and_leave(server: Server, agent: str | dict[str, Any], prompt: str, count: int) -> list[str]:
    """Create this many sessions of alice, each with an accepted turn that no client reads."""
    local = threading.local()
    with ExitStack() as stack:

        def client() -> Client:
            if not hasattr(local, "client"):
                local.client = stack.enter_context(closing(Client(server.origin(), server.keys.alice)))
            found: Client = local.client
            return found

        def one(_: int) -> str:
            session = client().create(agent)
            with client().stream(session, prompt) as stream:
                assert stream.next() is not None
            return session

        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(one, range(count)))


def last_word(client: Client, session: str) -> Any:
    """What the session's history ends with, once its turn is over."""
    response = client.get(f"/sessions/{session}/events/stream", params={"stream": "delta"})
    assert response.status_code in (200, 204)
    return client.history(session)[-1]["content"]


@pytest.mark.rule("A3", "A78")
def test_hundreds_of_queued_turns_of_one_tenant_do_not_make_anothers_first_turn_wait(narrow: Server, model: ModelServer) -> None:
    gate = f"crowd {narrow.shape}"
    prompt = model.script([steps.gate(gate), steps.text("at last")])
    sessions = post_and_leave(narrow, "patient", prompt, CROWD)
    model.wait_gate(gate, times=MOST_OF_THE_PLACES)
    bob = narrow.client(narrow.keys.bob)
    assert bob.turn(bob.create(), "and I?").text == "echo: and I?"
    # Each of the crowd's turns is still at the gate or behind it.
    assert {request.state for request in model.requests_of(prompt)} == {"open"}
    assert len(model.requests_of(prompt)) == MOST_OF_THE_PLACES
    model.open_gate(gate)
    # And none of the crowd's turns is forgotten.
    model.wait_until(lambda: len(model.requests_of(prompt)) == CROWD, what="all have run", timeout=240)
    alice = narrow.alice
    for session in sessions[:: CROWD // 10]:
        assert last_word(alice, session) == "at last"


@pytest.mark.rule("A3", "A63")
def test_blocking_tools_of_one_tenant_do_not_make_anothers_tools_wait(narrow: Server, model: ModelServer) -> None:
    gate = f"tools {narrow.shape}"
    trusting = {"name": "pilot", "tools": [{"name": name, "trust": True} for name in ("block", "tide_table")]}
    prompt = model.script([steps.call("block", {"gate": gate})], [steps.text("through")])
    sessions = post_and_leave(narrow, trusting, prompt, 3 * THREADS)
    narrow.tools.wait(gate)
    model.wait_until(lambda: len(model.requests_of(prompt)) == 3 * THREADS, what="all of them have called their tool")
    bob = narrow.client(narrow.keys.bob)
    quick = model.script([steps.call("tide_table", {"harbour": gate})], [steps.text("06:12")])
    assert bob.turn(bob.create(trusting), quick).text == "06:12"
    model.wait_until(lambda: narrow.tools.executions("block", gate=gate) >= THREADS // 2, what="its threads have begun")
    assert narrow.tools.executions("block", gate=gate) == THREADS // 2, "half of the threads are its, and no more"
    narrow.tools.open_gate(gate)
    alice = narrow.alice
    for session in sessions:
        assert last_word(alice, session) == "through"


@contextmanager
def counter_held(server: Server, slug: str) -> Iterator[None]:
    """A transaction that has locked the tenant's counter and does not end."""
    with server.database() as connection, connection.transaction():
        held = connection.execute(
            "select seq from tenant_counter where tenant_id = (select id from sessions_app_tenant where slug = %s) for update",
            (slug,),
        ).fetchone()
        assert held is not None
        yield


def waiting_for_locks(server: Server) -> int:
    with server.database() as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(str(row[0]))


@pytest.mark.rule("A3", "A78")
def test_a_lock_that_one_tenant_waits_for_does_not_make_anothers_first_turn_wait(narrow: Server, model: ModelServer) -> None:
    if narrow.shape == "embedded":
        pytest.skip("SQLite has one lock for all")
    gate = "before the lock"
    prompt = model.script([steps.gate(gate), steps.text("late")])
    # More turns than the worker has slots; claiming them needs the counter.
    sessions = post_and_leave(narrow, "patient", prompt, 3 * PLACES)
    model.wait_gate(gate, times=MOST_OF_THE_PLACES)
    bob = narrow.client(narrow.keys.bob)
    asking = [narrow.client(narrow.keys.alice) for _ in range(30)]
    idle = [client.create() for client in asking]
    with ThreadPoolExecutor(len(asking)) as threads:
        with counter_held(narrow, "alice"):
            # Running turns store, queued turns are claimed, and new requests are accepted.
            model.open_gate(gate)
            answers = [
                threads.submit(client.http.post, f"/sessions/{session}/turns", json=turn_body("me too"))
                for client, session in zip(asking, idle, strict=True)
            ]
            until = time.monotonic() + 90
            while waiting_for_locks(narrow) < 5:
                assert time.monotonic() < until, "nobody waits for the lock"
                time.sleep(0.02)
            for number in range(5):
                assert bob.turn(bob.create(), f"I {number}").text == f"echo: I {number}"
            assert not [answer for answer in answers if answer.done() and answer.result().status_code == 200]
        for answer in answers:
            response = answer.result(90)
            # Requests that waited too long got a 503 with Retry-After.
            assert response.status_code in (200, 503)
            assert response.status_code == 200 or int(response.headers["Retry-After"]) > 0
    alice = narrow.alice
    for session in sessions:
        assert last_word(alice, session) == "late"
