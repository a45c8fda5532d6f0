"""Each alert fires in a real Prometheus that watches a running installation, when what it is about happens.

The rules are those of ops/prometheus without their patience: no ``for``, short windows, low thresholds. tests/ops/test_alerts.py
tests these with series of an hour.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from ops.services import free_port
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.server import Process, Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="there is no Prometheus (apt-get install prometheus)"),
    pytest.mark.skipif("production" not in servers.shapes(), reason="the production shape needs a Postgres"),
]
UNREACHABLE = """
[[agents]]
name = "toolless"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-toolless"
[[agents.mcp]]
name = "gone"
url = "http://127.0.0.1:9/mcp"
"""


class Watch:
    """A Prometheus that scrapes every process of an installation five times a second."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        rules = yaml.safe_load((ROOT / "ops" / "prometheus" / "alerts.yml").read_text())
        self.names: list[str] = []
        for rule in rules["groups"][0]["rules"]:
            rule.pop("for", None)
            rule["expr"] = re.sub(r"\[1[05]m\]", "[10s]", rule["expr"])
            if rule["alert"] in ("AgenthostQueueStuck", "AgenthostWritesSlow"):
                rule["expr"] = re.sub(r"> [0-9.]+$", "> 0.0001", rule["expr"])
            self.names.append(rule["alert"])
        configuration = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"}
        configuration["scrape_configs"][0]["scrape_timeout"] = "200ms"
        configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        directory.mkdir()
        (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
        (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        self.port = free_port()
        assert PROMETHEUS is not None
        options = {
            "config.file": directory / "prometheus.yml",
            "storage.tsdb.path": directory / "data",
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        with (directory / "log").open("wb") as log:
            command = [PROMETHEUS, *(f"--{name}={value}" for name, value in options.items())]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def firing(self) -> set[str]:
        try:
            response = httpx.get(f"http://127.0.0.1:{self.port}/api/v1/alerts", trust_env=False, timeout=10)
        except httpx.TransportError:
            return set()
        if response.status_code != 200:
            return set()
        found: list[dict[str, Any]] = response.json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    def until(self, name: str, *, fires: bool = True) -> None:
        assert name in self.names
        self._until(lambda: (name in self.firing()) is fires, f"{name} should {'fire' if fires else 'end'}")
        self.names = [each for each in self.names if each != name]

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 90
        while not is_so():
            assert time.monotonic() < end, f"{what}; firing: {self.firing()}"
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def scene(tmp_path: Path, _model_server: ModelServer) -> Iterator[tuple[Server, Watch, list[int]]]:
    directory = tmp_path / "server"
    directory.mkdir()
    agents = directory / "with-mcp.toml"
    agents_file.write(agents, _model_server.url)
    agents.write_text(agents.read_text() + UNREACHABLE.format(model=_model_server.url))
    ports = [free_port() for _ in range(3)]
    environment = {"AGENTHOST_METRICS_PORT": str(ports[0]), "AGENTHOST_AGENTS_FILE": str(agents)}
    with servers.running("production", directory, _model_server.url, workers=0, environment=environment) as server:
        for port in ports[1:]:
            server.workers.append(server._start("worker", AGENTHOST_METRICS_PORT=str(port)))
            server.wait_metrics(port)
        watch = Watch(tmp_path / "prometheus", ports)
        yield server, watch, ports
        watch.stop()


def test_every_alert_fires_when_it_should(scene: tuple[Server, Watch, list[int]], model: ModelServer) -> None:
    server, watch, ports = scene
    alice = server.alice
    watch.until("AgenthostMcpServerDown")
    for name in ("AgenthostDown", "AgenthostDatabaseDown", "AgenthostNoWorker", "AgenthostProcessDown", "AgenthostRedisDown"):
        assert name not in watch.firing()

    failing = model.script([steps.status(400)])
    session = alice.create("echo")
    watched = alice.create("echo")
    for _ in range(12):
        alice.turn(session, failing, stream="delta")
    watch.until("AgenthostTurnsFail")
    for _ in range(6):
        alice.turn(session, failing, stream="delta")
    watch.until("AgenthostProviderFails")
    alice.turn(session, model.script([steps.text("Well.")]))
    watch.until("AgenthostWritesSlow")

    assert server.redis is not None
    assert server.redis.pid is not None
    os.kill(server.redis.pid, signal.SIGSTOP)
    watch.until("AgenthostRedisDown")
    os.kill(server.redis.pid, signal.SIGCONT)

    with alice.stream(watched, model.script([steps.hang()])):
        driving(server, ports).kill()
        watch.until("AgenthostProcessDown")
        watch.until("AgenthostRunsTakenOver")
        alice.cancel(watched)

    for worker in server.workers:
        worker.kill()
    watch.until("AgenthostNoWorker")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(alice.turn, session, model.script([steps.text("Late.")]))
        watch.until("AgenthostQueueStuck")
        watch.until("AgenthostQueueWithoutWorker")
        server.workers.append(server._start("worker", AGENTHOST_METRICS_PORT=str(ports[1])))
        assert waiting.result(120).text == "Late."

    database = server.owner["DATABASE_URL"].rpartition("/")[2]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f'alter database "{database}" with allow_connections false'.encode())
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (database,))
        watch.until("AgenthostDatabaseDown")
        admin.execute(f'alter database "{database}" with allow_connections true'.encode())

    server.kill()
    watch.until("AgenthostDown")
    assert watch.names == []


def driving(server: Server, ports: list[int]) -> Process:
    """The worker that drives the only run."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for worker, port in zip(server.workers, ports[1:], strict=True):
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=10).text
            if "\nagenthost_runs 1.0\n" in metrics:
                return worker
        time.sleep(0.05)
    raise AssertionError("no worker drives the run")
