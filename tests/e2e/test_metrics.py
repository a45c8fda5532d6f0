"""The metrics endpoint of each role: what it counts, and what it never shows."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, attempts


class Installation:
    """A server whose processes serve metrics, at ``web`` and ``worker`` (embedded: the same)."""

    def __init__(self, server: Server, web: int, worker: int) -> None:
        self.server, self.web, self.worker = server, web, worker

    def read(self, port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The value of each sample, by name and labels."""
        response = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30)
        assert response.status_code == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The sum over all processes."""
        ports = {self.web, self.worker}
        return sum(self.read(port).get((name, frozenset(labels.items())), 0.0) for port in ports)

    def until(self, expected: float, name: str, **labels: str) -> None:
        end = time.monotonic() + 60
        while (found := self.value(name, **labels)) != expected:
            assert time.monotonic() < end, f"{name}{labels} is {found}, not {expected}"
            time.sleep(0.05)


@pytest.fixture(scope="module", params=servers.shapes())
def installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Installation]:
    web = worker = free_port()
    directory = tmp_path_factory.mktemp("metrics")
    environment = {"AGENTHOST_METRICS_PORT": str(web)}
    with servers.running(request.param, directory, _model_server.url, workers=0, environment=environment) as server:
        if request.param == "production":
            worker = free_port()
            server.workers.append(server._start("worker", AGENTHOST_METRICS_PORT=str(worker)))
            server.wait_metrics(worker)
        yield Installation(server, web, worker)


@pytest.fixture
def alice(installation: Installation) -> Iterator[Client]:
    client = Client(installation.server.origin(), installation.server.keys.alice)
    yield client
    client.close()


def test_a_turn_is_counted_from_its_start_to_its_end(installation: Installation, alice: Client, model: ModelServer) -> None:
    def figures() -> dict[str, float]:
        return {
            "started": installation.value("agenthost_turns_started_total", agent="echo"),
            "done": installation.value("agenthost_turns_ended_total", agent="echo", outcome="done"),
            "first output": installation.value("agenthost_turn_first_output_seconds_count", agent="echo"),
            "queued": installation.value("agenthost_turn_queue_seconds_count"),
            "input": installation.value("agenthost_tokens_total", agent="echo", kind="input"),
            "output": installation.value("agenthost_tokens_total", agent="echo", kind="output"),
        }

    before = figures()
    prompt = model.script([steps.text("One."), steps.usage(70, 30)])
    assert alice.turn(alice.create("echo"), prompt).text == "One."
    installation.until(before["done"] + 1, "agenthost_turns_ended_total", agent="echo", outcome="done")
    after = figures()
    assert {name: after[name] - before[name] for name in before} == {
        "started": 1,
        "done": 1,
        "first output": 1,
        "queued": 1,
        "input": 70,
        "output": 30,
    }


def test_a_cancelled_turn_and_a_failed_one_have_outcomes_of_their_own(
    installation: Installation, alice: Client, model: ModelServer
) -> None:
    cancelled = installation.value("agenthost_turns_ended_total", agent="echo", outcome="cancelled")
    failed = installation.value("agenthost_turns_ended_total", agent="echo", outcome="error")
    session = alice.create("echo")
    with alice.stream(session, model.script([steps.text("And"), steps.hang()])) as stream:
        stream.until("text_delta")
        alice.cancel(session)
        stream.rest()
    installation.until(cancelled + 1, "agenthost_turns_ended_total", agent="echo", outcome="cancelled")
    assert alice.turn(session, model.script([steps.status(400)]), stream="delta").stop == "error"
    installation.until(failed + 1, "agenthost_turns_ended_total", agent="echo", outcome="error")


def test_requests_to_a_provider_are_counted_by_host_status_and_retries(
    installation: Installation, alice: Client, model: ModelServer
) -> None:
    host = httpx.URL(model.url).netloc.decode()

    def figures() -> list[float]:
        return [
            installation.value("agenthost_provider_requests_total", host=host, outcome="ok"),
            installation.value("agenthost_provider_refusals_total", host=host, status="503"),
            installation.value("agenthost_provider_retries_total", host=host),
            installation.value("agenthost_provider_first_output_seconds_count", host=host),
        ]

    before = figures()
    prompt = model.script(attempts([steps.status(503, retry_after="0")], [steps.text("Now.")]))
    assert alice.turn(alice.create("echo"), prompt).text == "Now."
    installation.until(before[0] + 1, "agenthost_provider_requests_total", host=host, outcome="ok")
    assert [after - earlier for after, earlier in zip(figures(), before, strict=True)] == [1, 1, 1, 1]


def test_tools_are_counted_by_name_and_outcome(installation: Installation, alice: Client, model: ModelServer) -> None:
    done = installation.value("agenthost_tool_calls_total", tool="tide_table", outcome="done")
    failed = installation.value("agenthost_tool_calls_total", tool="fail", outcome="failed")
    calls = [steps.call("tide_table", {"harbour": "Bergen"}, id="c1"), steps.call("fail", {"reason": "no"}, id="c2", index=1)]
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}, {"name": "fail", "trust": True}]})
    alice.turn(session, model.script(calls, [steps.text("Done.")]))
    installation.until(done + 1, "agenthost_tool_calls_total", tool="tide_table", outcome="done")
    installation.until(failed + 1, "agenthost_tool_calls_total", tool="fail", outcome="failed")


def test_open_streams_and_waiting_turns_are_gauges_that_fall_again(
    installation: Installation, alice: Client, model: ModelServer
) -> None:
    session = alice.create("echo")
    with alice.stream(session, model.script([steps.text("And"), steps.hang()])) as stream:
        stream.until("text_delta")
        installation.until(1, "agenthost_streams")
        installation.until(1, "agenthost_runs")
        alice.cancel(session)
        stream.rest()
    installation.until(0, "agenthost_runs")
    installation.until(0, "agenthost_streams")


def test_the_queue_the_database_and_redis_are_reported(installation: Installation) -> None:
    found = installation.read(installation.web)
    assert found[("agenthost_database_up", frozenset())] == 1
    assert found[("agenthost_turns", frozenset({("state", "queued")}))] == 0
    assert found[("agenthost_workers", frozenset())] == 1
    in_default = ("queue", "default")
    assert found[("agenthost_queue_turns", frozenset({in_default, ("state", "queued")}))] == 0
    assert found[("agenthost_queue_oldest_seconds", frozenset({in_default}))] == 0
    assert found[("agenthost_queue_workers", frozenset({in_default}))] == 1
    assert found[("agenthost_announcements_up", frozenset())] == 1
    if installation.server.shape == "production":
        assert found[("agenthost_redis_up", frozenset())] == 1
        assert found[("agenthost_journal_barrier_seconds_count", frozenset())] > 0


def test_answers_and_refusals_are_counted_by_face_and_status(installation: Installation, alice: Client) -> None:
    known = installation.value("agenthost_http_requests_total", face="aap", status="200")
    refused = installation.value("agenthost_http_requests_total", face="aap", status="401")
    other = installation.value("agenthost_http_requests_total", face="other", status="404")
    alice.meta()
    origin = installation.server.origin()
    assert httpx.get(f"{origin}/aap/v3/meta", trust_env=False).status_code == 401
    for path in ("/made-up-a", "/made-up-b"):
        assert httpx.get(origin + path, trust_env=False).status_code == 404
    installation.until(known + 1, "agenthost_http_requests_total", face="aap", status="200")
    installation.until(refused + 1, "agenthost_http_requests_total", face="aap", status="401")
    # Paths are no labels: anybody can make up as many as he likes.
    installation.until(other + 2, "agenthost_http_requests_total", face="other", status="404")
    assert not any("made-up" in str(key) for key in installation.read(installation.web))


def test_metrics_have_no_tenant_session_key_or_text(installation: Installation, alice: Client, model: ModelServer) -> None:
    session = alice.create("echo")
    alice.turn(session, model.script([steps.text("confidential-answer")]))
    for port in {installation.web, installation.worker}:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        assert "agenthost_" in text
        for secret in ("alice", session, installation.server.keys.alice, "confidential", "sk-echo"):
            assert secret not in text


def test_only_the_metrics_and_the_health_are_at_their_port_and_they_are_at_no_other(installation: Installation) -> None:
    for port in {installation.web, installation.worker}:
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=30).text == "ok\n"
    for path in ("/", "/aap/v3/meta", "/admin/", "/readyz"):
        assert httpx.get(f"http://127.0.0.1:{installation.web}{path}", trust_env=False).status_code == 404
    assert httpx.post(f"http://127.0.0.1:{installation.web}/metrics", trust_env=False).status_code == 501
    assert httpx.get(f"{installation.server.origin()}/metrics", trust_env=False).status_code == 404


def test_a_client_of_the_endpoint_that_sends_nothing_delays_it_only_for_some_seconds(installation: Installation) -> None:
    with socket.create_connection(("127.0.0.1", installation.web)):
        assert installation.value("agenthost_process_info", role=installation.server.webs[0].role) == 1


def test_the_openmetrics_format_is_spoken_to_clients_that_ask_for_it(installation: Installation) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    response = httpx.get(f"http://127.0.0.1:{installation.web}/metrics", headers=accept, trust_env=False)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_a_used_port_stops_the_start_and_names_the_setting(installation: Installation, tmp_path: Path) -> None:
    server = installation.server
    taken = {
        "AGENTHOST_METRICS_PORT": str(installation.web),
        "AGENTHOST_PORT": str(free_port()),
        "AGENTHOST_VAR_DIR": str(tmp_path),
    }
    process = server._start("web" if server.shape == "production" else "embedded", **taken)
    assert process.popen.wait(120) == 1
    log = process.log.read_text()
    assert "AGENTHOST_METRICS_PORT" in log
    assert "Traceback" not in log
