"""kill -9 of web, worker and beat at random moments under load, again and again."""

from __future__ import annotations

import logging
import random
import time

import pytest

from tests.fakes.model_server import ModelServer
from tests.faults.cluster import Cluster, wait_for
from tests.faults.crowd import Crowd

log = logging.getLogger(__name__)


def deaths(cluster: Cluster, model: ModelServer, *, seed: int, people: int, count: int, crashes: bool = False) -> Crowd:
    """``count`` deaths, the moments and the victims by the seed; returns when everybody has seen a whole turn after the last."""
    chance = random.Random(seed)
    victims = ["worker 0", "worker 1", "web 0", "web 1", "beat", *(["postgres", "redis"] if crashes else [])]
    died = []
    with Crowd(cluster.server, model, people, patience=90) as crowd:
        crowd.wait_turns(people)
        for _ in range(count):
            # A moment is not waited for, it is what is tried.
            time.sleep(chance.uniform(0.05, 1.5))
            victim, _, index = chance.choice(victims).partition(" ")
            died.append(f"{victim} {index}")
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
        last = time.monotonic()
        crowd.wait_turns(2 * people, timeout=90)
        assert time.monotonic() - last < 90
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


@pytest.mark.slow
@pytest.mark.rule("A78")
def test_a_hundred_waiting_turns_survive_the_death_of_every_worker(cluster: Cluster, model: ModelServer) -> None:
    """All workers at once, more runs than a take-over does in one look."""
    from tests.fakes import steps

    server = cluster.server
    alice = server.alice
    prompt = model.script([steps.gate("all dead"), steps.text("alive")])
    sessions = [alice.create() for _ in range(60)]
    for session in sessions:
        with alice.stream(session, prompt) as stream:
            stream.until("turn_start")
    model.wait_request(prompt, count=len(sessions), timeout=30)
    for index in range(2):
        cluster.kill_worker(index)
    died = time.monotonic()
    model.open_gate("all dead")
    wait_for(lambda: cluster.turns_running() == 0, "every turn has ended", 30)
    assert time.monotonic() - died < 30
    for session in sessions:
        assert alice.history(session)[-1]["content"] == "alive"
