"""The pods of ops/kubernetes, run as their manifests say: command, environment, mounts, user, read-only root, probes, stop."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops import check_kubernetes
from ops.check_kubernetes import Pod
from ops.services import folder, free_port
from tests.e2e import containers
from tests.e2e.client import Client
from tests.e2e.containers import Container, Secrets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not containers.works(), reason="bubblewrap makes no container here"),
]
RENDERED = check_kubernetes.with_all_components()
PODS = {pod.role: pod for pod in check_kubernetes.pods(RENDERED) if pod.name == f"agenthost-{pod.role}"}
"""Of each role; a second pool of workers has the same pods with another argument."""
PATIENCE = 120.0


@dataclass
class Cluster:
    """A machine that runs pods. Each gets a port of its own here, and the demo agent, as in the base."""

    directory: Path
    secrets: Secrets
    running: list[Container] = field(default_factory=list)
    ports: dict[str, dict[str, int]] = field(default_factory=dict)
    early: dict[str, Container] = field(default_factory=dict)
    """Pods that were started before the migration."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def mounts(self, pod: Pod) -> tuple[dict[str, Path], list[str]]:
        """The folders of the pod's volumes, by mount path, and which of them it may write to."""
        volumes = {each["name"]: each for each in pod.spec["volumes"]}
        found, writable = {}, []
        for mount in pod.container["volumeMounts"]:
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "secret" in volume:
                found[path] = {"agenthost-secrets": self.secrets.directory, "agenthost-owner": self.secrets.owner}[
                    volume["secret"]["secretName"]
                ]
            elif "configMap" in volume:
                found[path] = check_kubernetes.FOLDER / "base"
            else:
                shared = "persistentVolumeClaim" in volume
                found[path] = self.directory / (mount["name"] if shared else f"{mount['name']}-{next(self._numbers)}")
                found[path].mkdir(exist_ok=shared)
                writable.append(path)
        return found, writable

    def start(self, role: str, *command: str) -> Container:
        """The pod's container, or with ``command`` another process in it (kubectl exec)."""
        pod = PODS[role]
        ports = self.ports[role] = {"http": free_port(), "metrics": free_port()}
        here = {
            "AGENTHOST_PORT": str(ports["http"]),
            "AGENTHOST_METRICS_PORT": str(ports["metrics"]),
            "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1",
            "AGENTHOST_PLAIN_HTTP": "yes",
        }
        # The Dockerfile's ENV.
        image = {
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "AGENTHOST_HOST": "0.0.0.0",
            "AGENTHOST_VAR_DIR": "/app/var",
        }
        mounts, writable = self.mounts(pod)
        entry = command or ("ops/entrypoint", *pod.container["args"])
        log = self.directory / f"{role}-{next(self._numbers)}.log"
        container = containers.run(entry, {**image, **pod.settings, **here}, mounts, log, writable=writable)
        self.running.append(container)
        return container

    def passes(self, role: str, probe: dict[str, Any]) -> bool:
        get = probe["httpGet"]
        url = f"http://127.0.0.1:{self.ports[role][get['port']]}{get['path']}"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url, trust_env=False, timeout=probe.get("timeoutSeconds", 1)).status_code == 200
        return False

    def wait_for(self, role: str, name: str) -> None:
        """Wait until the pod's probe of this name passes."""
        until = time.monotonic() + PATIENCE
        while not self.passes(role, PODS[role].container[name]):
            container = self.running[-1]
            assert container.bwrap.poll() is None, container.log.read_text()
            assert time.monotonic() < until, container.log.read_text()
            time.sleep(0.1)

    def output(self, role: str, *command: str) -> str:
        container = self.start(role, *command)
        assert container.wait(PATIENCE) == 0, container.log.read_text()
        return container.log.read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with folder() as home, containers.services(home) as secrets:
        made = Cluster(tmp_path_factory.mktemp("cluster"), secrets)
        made.early = {role: made.start(role) for role in ("web", "worker")}
        for container in made.early.values():
            container.wait(PATIENCE)
        migration = made.start("migrate")
        assert migration.wait(PATIENCE) == 0, migration.log.read_text()
        yield made
        for container in made.running:
            container.kill()


def test_pods_start_after_the_migration_pass_their_probes_and_stop_within_their_time(cluster: Cluster) -> None:
    for early in cluster.early.values():
        assert early.wait(0) == 1
        assert "ops/entrypoint migrate" in early.log.read_text()

    worker, web = cluster.start("worker"), cluster.start("web")
    for role in ("web", "worker"):
        for probe in ("startupProbe", "livenessProbe"):
            cluster.wait_for(role, probe)
    cluster.wait_for("web", "readinessProbe")
    ports = cluster.ports["web"]
    for log in (worker.log, web.log):
        assert "is not a setting" not in log.read_text()

    manage = (".venv/bin/python", "manage.py")
    cluster.output("web", *manage, "create_tenant", "acme")
    key = cluster.output("web", *manage, "create_key", "acme", "--name", "backend").split()[-1]
    client = Client(f"http://127.0.0.1:{ports['http']}", key)
    try:
        with client.stream(client.create("demo"), "Hello!") as stream:
            stream.until("text_delta")
            web.terminate()
            worker.terminate()
            assert stream.rest()[-1].data["stopReason"] == "end_turn"
    finally:
        client.close()
    for role, container in (("web", web), ("worker", worker)):
        assert container.wait(PODS[role].spec["terminationGracePeriodSeconds"]) == 0, container.log.read_text()


def test_the_terminal_service_has_a_health_check_that_answers(cluster: Cluster) -> None:
    """Which it is for depends on the machine: sandboxes inside this container need user namespaces inside it."""
    service = cluster.start("terminals")
    cluster.wait_for("terminals", "livenessProbe")
    until = time.monotonic() + PATIENCE
    while not (written := list(cluster.directory.glob("var-*/terminals.health"))):
        assert time.monotonic() < until, service.log.read_text()
        time.sleep(0.05)
    var = written[0].parent
    pod = PODS["terminals"]
    command = pod.container["readinessProbe"]["exec"]["command"]
    found = containers.run(command, {"AGENTHOST_VAR_DIR": "/app/var"}, {"/app/var": var}, cluster.directory / "health.log")
    cluster.running.append(found)
    fault = (var / "terminals.health").read_text()
    assert (found.wait(PATIENCE), found.log.read_text()) == ((1, f"no terminals: {fault}\n") if fault else (0, "healthy\n"))
    service.terminate()
    assert service.wait(pod.spec["terminationGracePeriodSeconds"]) == 0, service.log.read_text()
