"""kill -9 of web, worker and beat at random moments under load, again and again."""

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
from tests.faults.clients import PILOT, Crowd
from tests.faults.cluster import TAKEN_OVER_WITHIN, Cluster, wait_for, wait_log

log = logging.getLogger(__name__)


def deaths(cluster: Cluster, model: ModelServer, *, seed: int, people: int, count: int, crashes: bool = False) -> Crowd:
    """``count`` deaths, the moments and the victims by the seed; returns when everybody has seen a whole turn after the last."""
    chance = random.Random(seed)
    victims = ["worker 0", "worker 1", "web 0", "web 1", "beat", *(["postgres", "redis"] if crashes else [])]
    died = []
    with Crowd(cluster.server, model, people, patience=240) as crowd:
        crowd.wait_turns(people)
        for _ in range(count):
            # A moment is not waited for, it is what is tried.
            time.sleep(chance.uniform(0.05, 1.5))
            victim, _, index = chance.choice(victims).partition(" ")
            died.append(f"{victim} {index}")
            log.info("seed %s: now %s", seed, died[-1])
            match victim:
                case "worker":
                    cluster.kill_worker(int(index))
                case "web":
                    cluster.kill_web(int(index))
                    # The other web may be next, and somebody has to be there.
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
        crowd.wait_turns(2 * people, timeout=240)
    log.info("seed %s: %s: %s", seed, ", ".join(died), crowd.told)
    return crowd


@pytest.mark.rule("A66", "A78", "A98", "A120")
def test_two_deaths_at_random_moments(cluster: Cluster, model: ModelServer) -> None:
    deaths(cluster, model, seed=1, people=4, count=2)


@pytest.mark.slow
@pytest.mark.rule("A66", "A78", "A98", "A120")
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_deaths_at_random_moments(cluster: Cluster, model: ModelServer, seed: int) -> None:
    crowd = deaths(cluster, model, seed=seed, people=8, count=8)
    assert crowd.told.lost_positions == 0, "only a crash of the database may take a position"


@pytest.mark.slow
@pytest.mark.rule("A66", "A78", "A98", "A120", "A40")
@pytest.mark.parametrize("seed", range(20, 24))
def test_everything_dies_at_random_moments(cluster: Cluster, model: ModelServer, seed: int) -> None:
    deaths(cluster, model, seed=seed, people=8, count=8, crashes=True)


@pytest.mark.rule("A66", "A78")
def test_a_worker_that_was_thought_dead_wakes_up_and_changes_nothing(cluster: Cluster, model: ModelServer) -> None:
    """Stopped for longer than its lease: its turns are others' when it comes back, and nothing of its is stored."""
    server = cluster.server
    alice = server.alice
    spoken = model.script([steps.text("half "), steps.gate("zombie"), steps.text("too late")])
    silent = model.script([steps.gate("zombie"), steps.text("once")])
    at_work = model.script([steps.call("block", {"gate": "zombie"}, id="z1")], [steps.text("I heard")])
    sessions = {prompt: alice.create(PILOT) for prompt in (spoken, silent, at_work)}
    # One worker alone, so that all three are its.
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
    # Whatever it still wanted to say, it has said when it has run another turn of its own or let its old ones go.
    wait_for(lambda: model.streams == 0, "it has closed its calls to the provider")
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
    """All workers at once, more runs than a take-over does in one look."""
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
        # How long a start takes is the machine's affair.
        wait_log(worker, "worker_ready")
    wait_for(lambda: cluster.turns_running() == 0, "every turn has ended", TAKEN_OVER_WITHIN)
    for session in sessions:
        assert alice.history(session)[-1]["content"] == "alive"
