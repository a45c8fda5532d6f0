"""A database outage: requests are refused meanwhile, and no acknowledged data is lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.services import Postgres, folder
from tests.e2e import server as servers
from tests.e2e import sse
from tests.e2e.client import check_problem, client_tool, tool, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

# tests/faults has outages of the database in the first tier.
pytestmark = [pytest.mark.embedded_too, pytest.mark.slow]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A database server that the tests may kill."""
    with folder() as home:
        server = Postgres(home, crash_safe=True)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def frail(postgres: Postgres, tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    if "production" not in servers.shapes():
        pytest.skip("needs Postgres")
    leases = {"AGENTHOST_LEASE_SECONDS": "6", "AGENTHOST_RENEW_SECONDS": "0.5", "AGENTHOST_DATABASE_POOL_WAIT": "1"}
    with servers.running("production", tmp_path, model.url, environment=leases, database_url=postgres.url()) as server:
        yield server


def bring_back(postgres: Postgres, server: Server) -> None:
    postgres.start()
    server.wait_ready(timeout=120)


@pytest.mark.rule("A6", "A4", "A40")
def test_the_server_responds_503_without_its_database_and_recovers(frail: Server, postgres: Postgres, model: ModelServer) -> None:
    alice = frail.alice
    prompt = model.script([steps.text("before")])
    session = alice.create()
    alice.turn(session, prompt)
    waiting = model.script([steps.call("mine", {}, id="o1")], [steps.text("after")])
    other = alice.create(tools=[client_tool("mine")])
    assert alice.turn(other, waiting).stop == "tool_use"
    postgres.kill()
    try:
        for method, path, body in (
            ("GET", "/sessions", None),
            ("GET", f"/sessions/{session}/history?type=full", None),
            ("POST", f"/sessions/{session}/turns", turn_body("hi")),
            ("POST", "/sessions", {"agent": {"name": "echo"}}),
        ):
            response = alice.http.request(method, path, json=body)
            assert response.status_code == 503, (method, path, response.text)
            check_problem(response)
            assert int(response.headers["Retry-After"]) > 0
        assert httpx.get(frail.origin() + "/healthz", timeout=60, trust_env=False, verify=False).status_code == 200
        assert httpx.get(frail.origin() + "/readyz", timeout=60, trust_env=False, verify=False).status_code == 503
    finally:
        bring_back(postgres, frail)
    assert alice.history(session) == [user(prompt), {"role": "assistant", "content": "before"}]
    assert alice.turn(session, "again").text == "echo: again"
    assert alice.turn(other, tool("o1", "x")).text == "after"


@pytest.mark.rule("A78", "A40", "A120")
def test_a_turn_that_was_running_when_the_database_died_ends_with_a_reason(
    frail: Server, postgres: Postgres, model: ModelServer
) -> None:
    alice = frail.alice
    prompt = model.script([steps.text("one ", "two "), steps.gate("outage"), steps.text("three"), steps.gate("outage 2")])
    session = alice.create()
    started: list[sse.SseEvent] = []
    with contextlib.suppress(httpx.TransportError), alice.stream(session, prompt) as stream:
        started.append(stream.until("turn_start"))
        stream.until("text_delta")
        model.wait_gate("outage")
    postgres.kill()
    died = time.monotonic()
    try:
        model.open_gate("outage")
        model.wait_gate("outage 2")
    finally:
        bring_back(postgres, frail)
    model.open_gate("outage 2")
    # From where the turn began: it may have ended by now.
    with alice.join(session, after=started[0].id) as joined:
        events = [*started, *joined.rest()]
    assert time.monotonic() - died < 180
    sse.check_turn(events)
    assert events[-1].data["stopReason"] in ("end_turn", "error")
    assert len({event.id for event in events}) == len(events)
    history = alice.history(session)
    assert history == [user(prompt), *sse.rebuilt(events)]
    assert history[1]["content"].startswith("one ")
    if events[-1].data["stopReason"] == "end_turn":
        assert history[1]["content"] == "one two three"
    assert alice.turn(session, "and now?").text == "echo: and now?"
