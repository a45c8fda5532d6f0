"""Web, worker and beat are killed (SIGKILL) repeatedly at random moments under load."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time

import pytest

from tests.e2e.client import Stream
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.clients import PILOT, Clients
from tests.faults.cluster import TAKEN_OVER_WITHIN, Cluster, wait_for, wait_log

log = logging.getLogger(__name__)


def kill_processes(
    cluster: Cluster, model: ModelServer, *, seed: int, client_count: int, kills: int, crashes: bool = False
) -> Clients:
    """Kill ``kills`` processes, chosen by the seed. Returns after more turns of all clients have ended."""
    chance = random.Random(seed)
    victims = ["worker 0", "worker 1", "web 0", "web 1", "beat", *(["postgres", "redis"] if crashes else [])]
    killed = []
    with Clients(cluster.server, model, client_count, patience=240) as clients:
        clients.wait_turns(client_count)
        for _ in range(kills):
            # The random moment of the kill is what the test varies.
            time.sleep(chance.uniform(0.05, 1.5))
            victim, _, index = chance.choice(victims).partition(" ")
            killed.append(f"{victim} {index}")
            log.info("seed %s: now %s", seed, killed[-1])
            match victim:
                case "worker":
                    cluster.kill_worker(int(index))
                case "web":
                    cluster.kill_web(int(index))
                    # The other web may be killed next, so this one must be ready.
                    cluster.server.wait_ready(int(index))
                case "beat":
                    cluster.kill_beat()
                case "postgres":
                    cluster.postgres.kill()
                    time.sleep(chance.uniform(0, 2))
                    cluster.postgres.start()
                case "redis":
                    assert cluster.server.redis is not None
                    cluster.server.redis.kill()
                    time.sleep(chance.uniform(0, 2))
                    cluster.server.redis.start()
        clients.wait_turns(2 * client_count, timeout=240, meanwhile=cluster.restart_ended)
    log.info("seed %s: %s: %s", seed, ", ".join(killed), clients.observed)
    return clients


@pytest.mark.rule("A66", "A78", "A98", "A120")
def test_two_deaths_at_random_moments(cluster: Cluster, model: ModelServer) -> None:
    kill_processes(cluster, model, seed=1, client_count=4, kills=2)


@pytest.mark.slow
@pytest.mark.rule("A66", "A78", "A98", "A120")
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_deaths_at_random_moments(cluster: Cluster, model: ModelServer, seed: int) -> None:
    clients = kill_processes(cluster, model, seed=seed, client_count=8, kills=8)
    assert clients.observed.lost_positions == 0, "only a crash of the database may lose a position"


@pytest.mark.slow
@pytest.mark.rule("A66", "A78", "A98", "A120", "A40")
@pytest.mark.parametrize("seed", range(20, 24))
def test_everything_dies_at_random_moments(cluster: Cluster, model: ModelServer, seed: int) -> None:
    kill_processes(cluster, model, seed=seed, client_count=8, kills=8, crashes=True)


@pytest.mark.rule("A66", "A78")
def test_a_worker_that_was_thought_dead_wakes_up_and_changes_nothing(cluster: Cluster, model: ModelServer) -> None:
    """A worker is frozen for longer than its lease. Others take its turns over, and it stores nothing when it resumes."""
    server = cluster.server
    alice = server.alice
    spoken = model.script([steps.text("half "), steps.gate("zombie"), steps.text("too late")])
    silent = model.script([steps.gate("zombie"), steps.text("once")])
    at_work = model.script([steps.call("block", {"gate": "zombie"}, id="z1")], [steps.text("I heard")])
    sessions = {prompt: alice.create(PILOT) for prompt in (spoken, silent, at_work)}
    # Only one worker, so that it runs all three turns.
    server.workers[1].kill()
    streams: dict[str, Stream] = {}
    with contextlib.ExitStack() as stack:
        for prompt, session in sessions.items():
            client = server.client(server.keys.alice, len(streams) % 2)
            streams[prompt] = stack.enter_context(client.stream(session, prompt))
        streams[spoken].until("text_delta")
        model.wait_gate("zombie", times=2)
        server.tools.wait("zombie")
        os.kill(server.workers[0].popen.pid, signal.SIGSTOP)
        try:
            server.workers[1] = server.start_worker()
            server.workers.pop()
            assert streams[spoken].rest()[-1].data == {"stopReason": "error"}
            model.wait_request(silent, count=2)
            server.tools.open_gate("zombie")
            model.open_gate("zombie")
            assert streams[silent].rest()[-1].data == {"stopReason": "end_turn"}
            assert streams[at_work].rest()[-1].data == {"stopReason": "end_turn"}
        finally:
            os.kill(server.workers[0].popen.pid, signal.SIGCONT)
    before = {session: alice.history(session) for session in sessions.values()}
    # When it has closed its provider calls, it will write nothing more for its old turns.
    wait_for(lambda: model.streams == 0, "the worker closes its calls to the provider")
    assert before == {session: alice.history(session) for session in sessions.values()}
    assert before[sessions[spoken]][-1]["content"] == "half "
    assert before[sessions[silent]][-1]["content"] == "once"
    assert [line["role"] for line in before[sessions[at_work]]] == ["user", "assistant", "tool", "assistant"]
    assert "interrupted" in before[sessions[at_work]][2]["content"]
    assert server.tools.executions("block", gate="zombie") == 1
    assert server.workers[0].alive
    for session in sessions.values():
        assert alice.turn(session, "well?").text == "echo: well?"


@pytest.mark.slow
@pytest.mark.rule("A78")
def test_sixty_turns_survive_the_death_of_every_worker(cluster: Cluster, model: ModelServer) -> None:
    """All workers are killed at once, with more runs than one sweep takes over."""
    server = cluster.server
    alice = server.alice
    prompt = model.script([steps.gate("all dead"), steps.text("alive")])
    sessions = [alice.create() for _ in range(60)]
    for session in sessions:
        with alice.stream(session, prompt) as stream:
            stream.until("turn_start")
    model.wait_request(prompt, count=len(sessions))
    for worker in server.workers:
        worker.kill()
    for index in range(2):
        cluster.kill_worker(index)
    model.open_gate("all dead")
    for worker in server.workers:
        # The time limit below does not include the start of the workers.
        wait_log(worker, "worker_ready")
    wait_for(lambda: cluster.turns_running() == 0, "every turn has ended", TAKEN_OVER_WITHIN)
    for session in sessions:
        assert alice.history(session)[-1]["content"] == "alive"
