"""Webs and workers that are forked from one parent: they serve as separate processes do, and survive each other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.client import user
from tests.e2e.server import Process, Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.skipif("production" not in servers.shapes(), reason="the production shape needs a Postgres")


@pytest.fixture
def server(tmp_path: Path, _model_server: ModelServer) -> Iterator[Server]:
    with servers.running("production", tmp_path / "forked", _model_server.url, forked=2) as running:
        yield running


def children(process: Process) -> set[int]:
    """The running children of a parent, when there are two."""

    def found() -> set[int] | None:
        pid = process.popen.pid
        running = set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        # One that has ended is there until its parent has seen it.
        running = {child for child in running if not has_ended(child)}
        return running if len(running) == 2 else None

    both: set[int] = until(found, process)
    return both


def until(found: Callable[[], Any], process: Process) -> Any:
    end = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < end, process.log.read_text()[-4000:]
    return value


def lines(process: Process, logger: str) -> list[dict[str, Any]]:
    # Without the line that is being written.
    complete = process.log.read_text().split("\n")[:-1]
    found = [json.loads(line) for line in complete if line.startswith("{")]
    return [line for line in found if line["logger"] == logger]


def served_by(server: Server) -> set[str]:
    """The numbers of the webs that have answered requests."""
    return {line["child"] for line in lines(server.webs[0], "agenthost.access")}


def ask(server: Server) -> int:
    """The status of a request on a connection of its own."""
    return httpx.get(f"{server.origin()}/aap/v3/meta", trust_env=False, timeout=30).status_code


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_each_process_serves_its_metrics_at_the_next_port(tmp_path: Path, model: ModelServer) -> None:
    first = free_port_with_next()
    environment = {"AGENTHOST_METRICS_PORT": str(first)}
    with servers.running("production", tmp_path / "metrics", model.url, forked=2, workers=0, environment=environment) as server:
        for port in (first, first + 1):
            server.wait_metrics(port)
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
            assert 'agenthost_process_info{role="web"} 1.0' in text
        served = {line["child"]: line["message"] for line in lines(server.webs[0], "agenthost.metrics.server")}
        assert served == {
            str(number + 1): f"metrics_served address=http://127.0.0.1:{first + number}/metrics" for number in (0, 1)
        }


def free_port_with_next() -> int:
    while True:
        port = free_port()
        with contextlib.suppress(OSError), socket.socket() as following:
            following.bind(("127.0.0.1", port + 1))
            return port


def test_all_processes_serve_turns_under_their_own_names(server: Server, model: ModelServer) -> None:
    web, worker = server.webs[0], server.workers[0]
    assert len(children(web) | children(worker)) == 4
    ready = until(lambda: found if len(found := worker_names(worker)) == 2 else None, worker)
    assert set(ready) == {"1", "2"}
    assert len(set(ready.values())) == 2
    prompt = model.script([steps.text("a word")])

    def turn(_: int) -> tuple[str, str]:
        client = server.client(server.keys.alice)
        session = client.create()
        return session, client.turn(session, user(prompt), stream="delta").text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(turn, range(24)))
    assert {text for _, text in answers} == {"a word"}
    # Each process draws its own ids.
    assert len({session for session, _ in answers}) == 24
    until(lambda: ask(server) == 401 and served_by(server) == {"1", "2"}, web)


def worker_names(process: Process) -> dict[str, str]:
    ready = [line for line in lines(process, "sessions_app.core.worker.worker") if line["message"].startswith("worker_ready")]
    return {line["child"]: line["message"] for line in ready}


def test_a_killed_web_comes_back_and_its_sibling_serves_meanwhile(server: Server) -> None:
    web = server.webs[0]
    before = children(web)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: has_ended(victim), web)
    # No connection waits for the process that has ended.
    assert [ask(server) for _ in range(20)] == [401] * 20
    after = children(web)
    assert len(after & before) == 1
    assert web.alive
    until(lambda: ask(server) == 401 and len({line["pid"] for line in lines(web, "agenthost.access")} & after) == 2, web)


def test_a_killed_worker_comes_back_and_its_turn_goes_on(server: Server, model: ModelServer) -> None:
    worker = server.workers[0]
    before = children(worker)
    prompt = model.script([steps.text("not lost")])
    for victim in before:
        os.kill(victim, signal.SIGKILL)
    client = server.client(server.keys.alice)
    assert client.turn(client.create(), user(prompt), stream="delta").text == "not lost"
    assert not children(worker) & before


@pytest.mark.slow
def test_agents_that_cannot_be_loaded_leave_the_sibling_serving_until_they_are_repaired(server: Server) -> None:
    """A child that is started again reads the code and the agents as they are now."""
    web = server.webs[0]
    before = children(web)
    agents = server.directory / "agents.toml"
    sound = agents.read_text()
    agents.write_text("[[agents]]\nname = 1\n")
    victim = min(before)
    os.kill(victim, signal.SIGKILL)

    def refusals() -> list[dict[str, Any]]:
        return [line for line in lines(web, "agenthost.supervisor") if line["message"].startswith("child_not_started")]

    until(lambda: len(refusals()) == 2, web)
    assert {line["pid"] for line in refusals()} == {web.popen.pid}
    assert "agents.toml" in refusals()[0]["message"]
    assert [ask(server) for _ in range(20)] == [401] * 20
    agents.write_text(sound)
    assert len(children(web) & before) == 1
    until(lambda: ask(server) == 401 and {line["pid"] for line in lines(web, "agenthost.access")} > before - {victim}, web)


def test_the_parents_have_loaded_nothing_of_the_server(server: Server) -> None:
    def read(pid: int, name: str) -> str:
        return Path(f"/proc/{pid}/{name}").read_text()

    for process in (server.webs[0], server.workers[0]):
        pid = process.popen.pid
        until(partial(lambda pid: "supervisor.py" in read(pid, "cmdline"), pid), process)
        assert "site-packages" in read(min(children(process)), "maps")
        assert "site-packages" not in read(pid, "maps")


@pytest.mark.parametrize("whole_group", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stopped_parent_ends_with_its_drained_children_and_status_0(server: Server, whole_group: bool) -> None:
    """Some supervisors signal all processes of a group: the parent repeats the signal, which must not end a drain."""
    web, worker = server.webs[0], server.workers[0]
    running = children(web) | children(worker)
    until(lambda: len(worker_names(worker)) == 2, worker)
    until(lambda: ask(server) == 401 and served_by(server) == {"1", "2"}, web)
    for process in (web, worker):
        (os.killpg if whole_group else os.kill)(process.popen.pid, signal.SIGTERM)
    for process in (web, worker):
        assert process.popen.wait(60) == 0, process.log.read_text()[-4000:]
    assert worker.log.read_text().count("worker_stopped") == 2
    assert web.log.read_text().count("drained: all responses are complete") == 2
    assert all(map(has_ended, running))
    with pytest.raises(httpx.ConnectError):
        ask(server)


@pytest.mark.slow
def test_children_end_when_their_parent_is_killed_and_the_port_is_free(server: Server) -> None:
    web, worker = server.webs[0], server.workers[0]
    running = children(web) | children(worker)
    for process in (web, worker):
        process.popen.kill()
        process.popen.wait(10)
    until(lambda: all(map(has_ended, running)), web)
    server.start_web(0)
    server.wait_ready(0)
    assert ask(server) == 401


@pytest.mark.slow
def test_duties_move_on_when_their_process_is_killed(server: Server) -> None:
    """Beat's duties: one process of the deployment has them, and another one within seconds of its end."""
    worker = server.workers[0]

    def holders() -> list[int]:
        with server.database() as connection:
            rows = connection.execute(
                "select client_port from pg_locks join pg_stat_activity using (pid) where locktype = 'advisory'"
                " and classid = 1095257163 and objid = 1 and pg_locks.database = (select oid from pg_database"
                " where datname = current_database())"
            ).fetchall()
        return [int(str(port)) for (port,) in rows]

    (first,) = until(holders, worker)
    says = [line for line in until(lambda: lines(worker, "agenthost.beat"), worker) if line["message"] == "beat_has_duties"]
    assert len(says) == 1
    os.kill(says[0]["pid"], signal.SIGKILL)
    until(lambda: (now := holders()) and first not in now, worker)
    assert len(holders()) == 1
    until(lambda: len({line["pid"] for line in lines(worker, "agenthost.beat")}) == 2, worker)


def test_a_refused_start_is_one_line_and_one_exit_code(server: Server) -> None:
    wrong = server._start("worker", DATABASE_URL="postgres://user:hush@127.0.0.1:9/agenthost")
    assert wrong.popen.wait(60) == 1
    (line,) = wrong.log.read_text().splitlines()
    assert line.startswith("agenthost: DATABASE_URL: ")
    assert "hush" not in line
