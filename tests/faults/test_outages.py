"""Outages of Redis and Postgres under load: turns continue or end, and no acknowledged data is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from tests.e2e import machine_speed
from tests.e2e.client import Client, turn_body, user
from tests.e2e.load.concurrent_clients import at_once, statuses
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.clients import Clients, Observations, RetryingClient, Run
from tests.faults.cluster import Cluster, wait_for


def announcements(server: Server, index: int) -> bool:
    return bool(httpx.get(server.origin(index) + "/readyz", timeout=60, trust_env=False, verify=False).json()["announcements"])


def ready(server: Server, index: int) -> bool:
    return httpx.get(server.origin(index) + "/readyz", timeout=60, trust_env=False, verify=False).status_code == 200


@pytest.mark.rule("A78", "A120")
def test_an_outage_of_redis_is_invisible_to_clients(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    own = server.redis
    assert own is not None
    with Clients(server, model, 4) as clients:
        clients.wait_turns(4)
        own.stop()
        wait_for(lambda: not announcements(server, 0) and not announcements(server, 1), "the webs have lost the connection")
        clients.wait_turns(8)
        own.start()
        wait_for(lambda: announcements(server, 0) and announcements(server, 1), "the webs have reconnected")
        clients.wait_turns(8)
    assert clients.observed.stops.keys() == {"end_turn", "tool_use"}, clients.observed
    assert clients.observed.reconnects == clients.observed.refused == 0, clients.observed


@pytest.mark.rule("A78", "A121")
def test_a_turn_can_be_cancelled_without_redis(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    assert server.redis is not None
    alice = server.alice
    prompt = model.script([steps.text("on and "), steps.gate("unstopped"), steps.text("on")])
    session = alice.create()
    server.redis.kill()
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        request = model.wait_request(prompt)
        assert alice.cancel(session)["cancelled"] is True
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert model.wait_ended(request) == "closed"


@pytest.mark.rule("A78")
def test_a_redis_that_hangs_delays_requests_only_briefly(cluster: Cluster, model: ModelServer) -> None:
    """Redis accepts connections but never responds; publishing does not wait for it."""
    server = cluster.server
    assert server.redis is not None
    assert server.redis.pid is not None
    alice = server.alice
    session = alice.create()
    usual = machine_speed.bound(0, lambda: alice.turn(session, "hello"))
    os.kill(server.redis.pid, signal.SIGSTOP)
    try:
        for number in range(3):
            began = time.monotonic()
            with alice.stream(session, f"hello {number}") as stream:
                accepted = time.monotonic()
                assert stream.rest()[-1].data == {"stopReason": "end_turn"}
            assert accepted - began < usual, "accepting waited for Redis"
            assert time.monotonic() - began < 10 + usual
    finally:
        os.kill(server.redis.pid, signal.SIGCONT)
    wait_for(lambda: announcements(server, 0) and announcements(server, 1), "the webs have reconnected")
    assert alice.turn(session, "back").text == "echo: back"


@pytest.mark.rule("A78")
def test_thirty_turns_at_once_are_all_accepted_while_redis_hangs(cluster: Cluster) -> None:
    server = cluster.server
    assert server.redis is not None
    assert server.redis.pid is not None
    sessions = [server.alice.create() for _ in range(30)]

    def turn_in(session: str) -> Callable[[Client], httpx.Response]:
        return lambda client: client.post(f"/sessions/{session}/turns", json=turn_body("hello", stream="none"))

    quiet = machine_speed.seconds(lambda: at_once(server, *map(turn_in, sessions)))
    os.kill(server.redis.pid, signal.SIGSTOP)
    try:
        answers: list[httpx.Response] = []
        # The better of two: a wait for Redis would be in both, a stall of the machine is not.
        frozen = min(machine_speed.seconds(lambda: answers.extend(at_once(server, *map(turn_in, sessions)))) for _ in range(2))
    finally:
        os.kill(server.redis.pid, signal.SIGCONT)
    assert statuses(answers) == [200] * 60
    # The sweep starts their runs instead of a wake-up, without waiting for a timeout of Redis.
    assert frozen < 4 * quiet + 2
    wait_for(lambda: announcements(server, 0) and announcements(server, 1), "the webs have reconnected")


@pytest.mark.rule("A78")
def test_workers_and_runs_survive_a_read_only_redis(cluster: Cluster, model: ModelServer) -> None:
    """Redis became a replica, or its disk is full: it responds with errors."""
    server = cluster.server
    assert server.redis is not None
    alice = server.alice
    prompt = model.script([steps.text("on and "), steps.gate("refused"), steps.text("on")])
    with redis.Redis.from_url(server.redis.url()) as admin, alice.stream(alice.create(), prompt) as stream:
        stream.until("text_delta")
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            for number in range(3):
                assert alice.turn(alice.create(), f"hello {number}").text == f"echo: hello {number}"
            refused = [worker.log for worker in server.workers]
            wait_for(
                lambda: all("wake_ups_not_received" in log.read_text() for log in refused),
                "Redis has refused a command of each worker",
            )
            assert all(worker.alive for worker in server.workers)
        finally:
            admin.execute_command("REPLICAOF", "NO", "ONE")
        model.open_gate("refused")
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert all(worker.alive for worker in server.workers)
    wait_for(lambda: announcements(server, 0) and announcements(server, 1), "the webs have reconnected")


@pytest.mark.rule("A40", "A78", "A98")
def test_postgres_is_restarted_under_load(cluster: Cluster, model: ModelServer) -> None:
    """A fast shutdown, as in an upgrade: no data and no position is lost."""
    with Clients(cluster.server, model, 4) as clients:
        clients.wait_turns(4)
        cluster.postgres.stop()
        wait_for(lambda: not ready(cluster.server, 0) and not ready(cluster.server, 1), "the webs have lost the connection")
        cluster.postgres.start()
        clients.wait_turns(8)
    assert clients.observed.lost_positions == 0, clients.observed


def positions_of(cluster: Cluster) -> set[tuple[object, object]]:
    return {(tenant, seq) for tenant, seq in cluster.ask("select tenant_id, seq from event")}


@pytest.mark.rule("A40", "A78", "A98", "A120")
def test_no_sequence_number_is_reused_after_a_crash_of_postgres(cluster: Cluster, model: ModelServer) -> None:
    with Clients(cluster.server, model, 4) as clients:
        clients.wait_turns(4)
        ((before,),) = cluster.ask("select max(seq) from event")
        cluster.postgres.kill()
        wait_for(lambda: not ready(cluster.server, 0) and not ready(cluster.server, 1), "the webs have lost the connection")
        cluster.postgres.start()
        clients.wait_turns(8)
    assert isinstance(before, int)
    beyond = cluster.ask("select tenant_id, after, upto from journal_gap where upto > %s", before)
    assert beyond, "the counter did not skip numbers of events that may have been sent and lost"
    inside = cluster.ask(
        "select count(*) from event e join journal_gap g using (tenant_id) where e.seq > g.after and e.seq <= g.upto"
    )
    assert inside == [(0,)], "there are events inside a gap"


@pytest.mark.rule("A120", "A40")
def test_a_position_lost_in_a_crash_of_the_database_is_410(cluster: Cluster, model: ModelServer) -> None:
    """Events were sent but not yet on disk: the client is told to read the stream from its start."""
    server = cluster.server
    alice = server.alice
    # Deltas reach the disk within half a second, so a continuous stream always has some that are not on disk yet.
    prompt = model.script([*(step for w in range(400) for step in (steps.text(f"{w} "), steps.pause(0.01)))])
    session = alice.create()
    client = RetryingClient(server, Observations())
    run = Run(client, session, turn_body(prompt, stream="delta"))
    with alice.stream(session, prompt) as stream:
        # On a slow machine many deltas are one event.
        while len(stream.seen) < 20:
            assert stream.next() is not None
        cluster.postgres.kill()
        # Read everything that the server has already sent.
        stream.until_comment()
        while stream._ready:
            stream.next()
    last = stream.seen[-1].id
    cluster.postgres.start()
    wait_for(lambda: ready(server, 0), "the web has reconnected")
    response = alice.get(f"/sessions/{session}/events/stream", params={"stream": "delta", "after": last})
    kept = {str(seq) for (seq,) in cluster.ask("select to_hex(seq) from event")}
    if last[:16].lstrip("0") in kept:
        assert response.status_code in (200, 204)
    else:
        assert response.status_code == 410
    run.accepted = True
    run.finish()
    if not run.unseen:
        assert run.stop in ("end_turn", "error")
    words = alice.history(session)
    assert words[0] == user(prompt)
    said = words[1]["content"]
    assert "".join(f"{w} " for w in range(400)).startswith(said)
    if not run.unseen:
        assert said == run.text
    assert alice.turn(session, "and now?").text == "echo: and now?"
    client.close()


def kill_a_backend(cluster: Cluster) -> bool:
    """Kill a backend that serves a worker with SIGKILL; False if there was none."""
    for pid, name, *_ in cluster.backends():
        if "worker" in str(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(str(pid)), signal.SIGKILL)
                return True
    return False


@pytest.mark.rule("A78", "A40")
def test_recovery_after_a_killed_postgres_backend(cluster: Cluster, model: ModelServer) -> None:
    """After SIGKILL of one backend, Postgres ends all of them and recovers by itself."""
    with Clients(cluster.server, model, 3) as clients:
        clients.wait_turns(3)
        wait_for(lambda: kill_a_backend(cluster), "one backend is killed")
        clients.wait_turns(6)


@pytest.mark.rule("A6")
def test_every_request_is_refused_in_time_while_postgres_is_down(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    alice = server.alice
    session = alice.create()
    in_time = machine_speed.bound(3, lambda: alice.turn(session, "hello"))
    cluster.postgres.stop()
    try:
        asked: list[tuple[str, str, object]] = [
            ("GET", "/sessions", None),
            ("GET", f"/sessions/{session}", None),
            ("POST", "/sessions", {"agent": {"name": "echo"}}),
            ("POST", f"/sessions/{session}/turns", turn_body("hi")),
            ("POST", f"/sessions/{session}/cancel", None),
            ("GET", f"/sessions/{session}/events/stream?stream=delta", None),
            ("DELETE", f"/sessions/{session}", None),
        ]
        with ThreadPoolExecutor(len(asked)) as threads:
            for one, response in zip(asked, threads.map(lambda one: alice.request(*one), asked), strict=True):
                assert response.status_code == 503, one
                assert int(response.headers["Retry-After"]) > 0
                assert response.elapsed.total_seconds() < in_time, one
    finally:
        cluster.postgres.start()
    cluster.heal()
    assert alice.turn(session, "hello").text == "echo: hello"
