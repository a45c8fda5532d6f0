"""Worker pools: turns of an agent with a queue run only at workers that serve it (docs/operating.md#worker-pools)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Process, Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

WAIT = 60.0
HEAVY = """
[[agents]]
name = "heavy"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-heavy"
queue = "heavy"
"""


def agents_in(directory: Path, model_url: str) -> dict[str, str]:
    """The setting for the agents of the tests and one with a queue."""
    path = agents_file.write(directory / "with-queues.toml", model_url)
    path.write_text(path.read_text() + HEAVY.format(model=model_url))
    return {"AGENTHOST_AGENTS_FILE": str(path)}


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Server]:
    """A web and a worker of the default queue; tests start and end the workers of others."""
    if "production" not in servers.shapes():
        pytest.skip("the embedded server has no other worker")
    directory = tmp_path_factory.mktemp("pools")
    environment = {**servers.PATIENT, **agents_in(directory, _model_server.url)}
    with servers.running("production", directory, _model_server.url, environment=environment) as server:
        yield server


@pytest.fixture
def alice(pools: Server) -> Iterator[Client]:
    with contextlib.closing(Client(pools.origin(), pools.keys.alice)) as client:
        yield client


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def readiness(server: Server) -> tuple[int, list[str]]:
    answer = httpx.get(server.origin() + "/readyz", timeout=60, trust_env=False)
    return answer.status_code, answer.json().get("queues_without_worker", [])


def row(server: Server, session: str) -> tuple[Any, ...]:
    """State, queue, worker and the worker's process of the session's turn."""
    with server.database() as connection:
        found = connection.execute(
            "select t.state, t.queue, t.worker, p.pid from sessions_app_turn t join sessions_app_session s on s.id = t.session_id"
            " left join sessions_app_workerpresence p on p.worker = t.worker where s.public_id = %s",
            [session],
        ).fetchone()
    assert found is not None
    return found


def ran_at(server: Server, session: str) -> int:
    state, _, _, process = row(server, session)
    assert state == "done"
    return int(process)


def end(server: Server, worker: Process) -> None:
    worker.stop()
    server.workers.remove(worker)
    # Its row is deleted when it ends.
    until(lambda: readiness(server)[1] == ["heavy"], "the queue has no worker")


def test_a_turn_of_a_queue_waits_for_a_worker_that_serves_it(pools: Server, alice: Client, model: ModelServer) -> None:
    (default,) = pools.workers
    session, other = alice.create("heavy"), alice.create("echo")
    with alice.stream(session, model.script([steps.text("heavy at last")])) as stream:
        stream.until("turn_start")
        quick = Client(pools.origin(), pools.keys.alice)
        with contextlib.closing(quick):
            # The default worker looks for turns meanwhile, and runs its own.
            assert quick.turn(other, "hello").text == "echo: hello"
        assert row(pools, session)[:3] == ("queued", "heavy", "")
        assert readiness(pools) == (200, ["heavy"])
        worker = pools.start_worker("--queues", "heavy")
        stream.rest()
    assert ran_at(pools, session) == worker.popen.pid
    assert ran_at(pools, other) == default.popen.pid
    assert readiness(pools) == (200, [])
    # One that is there is woken by a message of its queue.
    for agent, process in (("heavy", worker), ("echo", default), ("heavy", worker)):
        session = alice.create(agent)
        assert alice.turn(session, model.script([steps.text("again")])).stop == "end_turn"
        assert ran_at(pools, session) == process.popen.pid
    end(pools, worker)


@pytest.mark.slow
def test_a_killed_workers_turn_is_taken_over_within_its_pool(pools: Server, alice: Client, model: ModelServer) -> None:
    first = pools.start_worker(AGENTHOST_QUEUES="heavy,light")
    until(lambda: readiness(pools)[1] == [], "the queue has a worker")
    session = alice.create("heavy")
    prompt = model.script([steps.gate("pool 1"), steps.text("continued")])
    with alice.stream(session, prompt) as stream:
        stream.until("turn_start")
        model.wait_gate("pool 1")
        dead = row(pools, session)[2]
        first.kill()
        pools.workers.remove(first)

        def is_overdue() -> bool:
            """The lease ended long enough ago for the default worker to have looked for such runs several times."""
            with pools.database() as connection:
                overdue = (
                    "select lease_expires_at < now() - interval '3 seconds' from sessions_app_workerpresence where worker = %s"
                )
                found = connection.execute(overdue, [dead]).fetchone()
            return bool(found and found[0])

        until(is_overdue, "the dead worker's lease has expired")
        assert row(pools, session)[:3] == ("running", "heavy", dead)
        assert readiness(pools) == (200, ["heavy"])
        second = pools.start_worker(AGENTHOST_QUEUES="heavy")
        model.wait_request(prompt, count=2, timeout=WAIT)
        model.open_gate("pool 1")
        stream.rest()
    assert ran_at(pools, session) == second.popen.pid
    assert alice.history(session)[-1]["content"] == "continued"
    end(pools, second)


def test_the_embedded_server_serves_all_queues(tmp_path: Path, model: ModelServer) -> None:
    if "embedded" not in servers.shapes():
        pytest.skip("this run is about production")
    environment = {**servers.DEFAULT_LEASES, **agents_in(tmp_path, model.url)}
    with servers.running("embedded", tmp_path / "server", model.url, environment=environment) as server:
        session = server.alice.create("heavy")
        assert server.alice.turn(session, model.script([steps.text("here")])).text == "here"
        assert readiness(server) == (200, [])
