"""Postgres outages longer than the leases, for all processes or one worker: answers stay complete and are not repeated."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ops.services import Postgres
from tests.e2e.client import turn_body, user
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, attempts
from tests.faults.clients import Observations, RetryingClient, Run
from tests.faults.cluster import Cluster, wait_for, wait_log
from tests.faults.proxy import Link

STREAMS = 50
Away = Callable[[], contextlib.AbstractContextManager[None]]
Begin = Callable[[Observations, str], Run]


def words(seconds: float) -> list[Any]:
    """A model's script that lasts this long, with two words per second."""
    return [each for number in range(int(seconds * 2)) for each in (steps.text(f"{number} "), steps.pause(0.5))]


def text_of(said: list[Any]) -> str:
    return "".join(f"{number} " for number in range(len(said) // 2))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextlib.contextmanager
def stopped(postgres: Postgres, *, crashed: bool = False) -> Iterator[None]:
    if crashed:
        postgres.kill()
    else:
        postgres.stop()
    try:
        yield
    finally:
        postgres.start()


@contextlib.contextmanager
def frozen(postgres: Postgres) -> Iterator[None]:
    """Like a server whose disk hangs: connections stay open but nothing answers."""
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGSTOP)
    processes = [postgres.pid, *children(postgres.pid)]
    for pid in processes[1:]:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def cut(link: Link) -> Iterator[None]:
    link.cut()
    try:
        yield
    finally:
        link.restore()


@pytest.fixture
def begun(cluster: Cluster) -> Iterator[Begin]:
    """Creates a turn in a new session, with its own client."""
    clients: list[RetryingClient] = []

    def begin(observed: Observations, prompt: str) -> Run:
        clients.append(RetryingClient(cluster.server, observed))
        return Run(clients[-1], clients[-1].create(), turn_body(prompt, stream="delta"))

    yield begin
    for client in clients:
        client.close()


@pytest.fixture
def link(cluster: Cluster) -> Iterator[Link]:
    """A proxy to Postgres; processes that use the URL from ``behind`` connect through it."""
    with Link(cluster.postgres.port) as link:
        yield link


def behind(cluster: Cluster, link: Link) -> str:
    return cluster.server.environment["DATABASE_URL"].replace(f":{cluster.postgres.port}/", f":{link.port}/")


@pytest.fixture
def away(cluster: Cluster, link: Link, request: pytest.FixtureRequest) -> Iterator[Away]:
    if request.param == "stopped":
        yield lambda: stopped(cluster.postgres)
    elif request.param == "crashed":
        yield lambda: stopped(cluster.postgres, crashed=True)
    elif request.param == "frozen":
        if not Path("/proc").exists():
            pytest.skip("finding the backends of a server needs /proc")
        yield lambda: frozen(cluster.postgres)
    else:
        direct = cluster.server.environment["DATABASE_URL"]
        cluster.server.environment["DATABASE_URL"] = behind(cluster, link)
        cluster.restart_all()
        try:
            yield lambda: cut(link)
        finally:
            cluster.server.environment["DATABASE_URL"] = direct
            cluster.restart_all()


def fifty_streams(cluster: Cluster, model: ModelServer, away: Away, begun: Begin) -> Observations:
    """Fifty answers continue for 20 s during the outage; each is stored completely, by the run that started it."""
    away_gate, back_gate = (f"{name} {secrets.token_hex(3)}" for name in ("away", "back"))
    said = words(20)
    script = model.script([steps.text("begin "), steps.gate(away_gate), *said, steps.gate(back_gate), steps.text("end")])
    observed = Observations()
    runs = [begun(observed, script) for _ in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as threads:
        ends = [threads.submit(run.finish) for run in runs]
        wait_for(lambda: all(run.text == "begin " for run in runs), "all clients have received the first text")
        with away():
            model.open_gate(away_gate)
            model.wait_gate(back_gate, times=STREAMS, timeout=150)
        model.open_gate(back_gate)
        for end in ends:
            end.result(120)
    for run in runs:
        whole = f"begin {text_of(said)}end"
        assert run.client.history(run.session) == [user(script), {"role": "assistant", "content": whole}]
        assert run.unseen or run.text == whole
    assert len(model.requests_of(script)) == STREAMS
    taken_over = "select count(*) from sessions_app_turn t join sessions_app_session s on s.id = t.session_id"
    mine = [run.session for run in runs]
    assert cluster.ask(f"{taken_over} where t.takeovers > 0 and s.public_id = any(%s)", mine) == [(0,)]
    return observed


@pytest.mark.slow
@pytest.mark.rule("A78", "A6")
@pytest.mark.parametrize("away", ["stopped", "frozen", "cut"], indirect=True)
def test_fifty_streams_continue_through_twenty_seconds_without_postgres(
    cluster: Cluster, model: ModelServer, away: Away, begun: Begin
) -> None:
    """Each client receives its complete answer over one stream, and no turn ends with an error."""
    observed = fifty_streams(cluster, model, away, begun)
    assert observed.stops == {"end_turn": STREAMS}
    assert observed.reconnects == observed.lost_positions == 0, observed


@pytest.mark.slow
@pytest.mark.rule("A78", "A120")
@pytest.mark.parametrize("away", ["crashed"], indirect=True)
def test_fifty_answers_are_complete_after_a_crash_of_postgres(
    cluster: Cluster, model: ModelServer, away: Away, begun: Begin
) -> None:
    """Clients whose position was lost read the turn from its start, or the history if the turn has ended."""
    observed = fifty_streams(cluster, model, away, begun)
    assert observed.stops.keys() <= {"end_turn", "unseen"}, observed


@pytest.fixture
def cut_off(cluster: Cluster, link: Link) -> Iterator[Link]:
    """Worker 0 is the only worker and connects to Postgres through the link."""
    old = cluster.server.workers
    for worker in old:
        worker.kill()
    cluster.server.workers[0] = cluster.server._start("worker", DATABASE_URL=behind(cluster, link))
    wait_log(cluster.server.workers[0], "worker_ready")
    yield link
    link.restore()
    cluster.server.workers[0].kill()


@pytest.mark.slow
@pytest.mark.rule("A78")
@pytest.mark.parametrize("how", ["hold", "cut"])
def test_a_worker_that_loses_postgres_for_forty_seconds_repeats_nothing(
    cluster: Cluster, model: ModelServer, cut_off: Link, begun: Begin, how: str
) -> None:
    """Another worker takes its turns over. When the first reconnects, it closes its calls and stores nothing."""
    away_gate, back_gate, never = (f"{name} {secrets.token_hex(3)}" for name in ("away", "back", "never"))
    said = words(40)
    speaking = model.script([steps.text("begin "), steps.gate(away_gate), *said, steps.gate(back_gate), steps.gate(never)])
    first = [steps.gate(away_gate), steps.pause(2.0), steps.text("said "), *said, steps.gate(back_gate), steps.gate(never)]
    # One script per turn, because scripts count the requests to them.
    silent = [model.script(attempts(first, [steps.text("said by another")])) for _ in range(5)]
    observed, prompts = Observations(), [speaking] * 5 + silent
    runs = [begun(observed, prompt) for prompt in prompts]
    of_speaking, of_silent = runs[:5], runs[5:]
    with ThreadPoolExecutor(len(runs)) as threads:
        ends = [threads.submit(run.finish) for run in runs]
        wait_for(lambda: all(run.text == "begin " for run in of_speaking), "all clients have received the first text")
        model.wait_gate(away_gate, times=10)
        # The worker claims turns in batches; when this turn is over, the claims of the silent ones are stored.
        begun(observed, "hello").finish()
        announced = model.requests_of(speaking)
        unannounced = [model.wait_request(prompt) for prompt in silent]
        getattr(cut_off, how)()
        cluster.server.workers[1] = cluster.server._start("worker")
        model.open_gate(away_gate)
        for end in ends:
            end.result(120)
        # The end of a turn is announced through Redis, but a run that another worker continues is not.
        assert [model.wait_ended(request) for request in announced] == ["closed"] * 5
        model.wait_gate(back_gate, times=5, timeout=150)
        assert [request.state for request in unannounced] == ["open"] * 5
        cut_off.restore()
        model.open_gate(back_gate)
        assert [model.wait_ended(request) for request in unannounced] == ["closed"] * 5
    for run in of_speaking:
        assert (run.stop, run.text) == ("error", "begin ")
    for run in of_silent:
        assert (run.stop, run.text) == ("end_turn", "said by another")
    for run, prompt in zip(runs, prompts, strict=True):
        assert run.client.history(run.session) == [user(prompt), {"role": "assistant", "content": run.text}]
        # A late write of the old run would show before this turn's events.
        assert run.client.turn(run.session, "and now?").text == "echo: and now?"
    assert observed.stops == {"error": 5, "end_turn": 16}
