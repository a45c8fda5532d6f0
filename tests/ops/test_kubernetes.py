"""The manifests of ops/kubernetes: sound as shipped, mistakes are named, and rendered as kubectl renders them."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops import check_kubernetes, kustomization
from tests.paths import ROOT

EVERYTHING = check_kubernetes.with_all_components()
KUBECTL = shutil.which("kubectl")
METRICS = (ROOT / "docs" / "metrics.md").read_text()


def test_what_the_project_ships_is_sound() -> None:
    for name, resources in check_kubernetes.rendered().items():
        assert check_kubernetes.faults(resources) == [], name
    kinds = {each["kind"] for each in EVERYTHING}
    assert kinds >= {"Deployment", "Job", "PodDisruptionBudget", "ScaledObject", "NetworkPolicy", "Ingress", "PodMonitor"}


def comparable(resources: list[Any]) -> dict[tuple[str, str], Any]:
    """The objects without the digests of ConfigMaps, which are of each renderer."""
    text = re.sub(r"(agenthost-(?:settings|agents))-[a-z0-9]{10}", r"\1", json.dumps(resources))
    return {(each["kind"], each["metadata"]["name"]): each for each in json.loads(text)}


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")
@pytest.mark.parametrize("complete", [False, True], ids=["example", "all components"])
def test_it_is_rendered_as_by_kubectl(tmp_path: Path, complete: bool) -> None:
    assert KUBECTL is not None
    shutil.copytree(check_kubernetes.FOLDER, tmp_path / "kubernetes")
    example = tmp_path / "kubernetes" / "overlays" / "example"
    file = example / "kustomization.yaml"
    if complete:
        wanted = yaml.safe_load(file.read_text())
        names = ["autoscaling", "gateway", "ingress", "monitoring", "worker-pool", "worker-pool-autoscaling"]
        names += ["workspaces", "terminals"]
        file.write_text(yaml.safe_dump({**wanted, "components": [f"../../components/{name}" for name in names]}))
    done = subprocess.run([KUBECTL, "kustomize", str(example)], capture_output=True, text=True, check=True, timeout=60)
    theirs = comparable(list(yaml.safe_load_all(done.stdout)))
    ours = comparable(EVERYTHING if complete else kustomization.render(check_kubernetes.EXAMPLE))
    assert theirs.keys() == ours.keys()
    for key, resource in ours.items():
        assert theirs[key] == resource


def of(resources: list[Any], kind: str, name: str) -> Any:
    return next(each for each in resources if (each["kind"], each["metadata"]["name"]) == (kind, f"agenthost{name}"))


def container(resources: list[Any], role: str) -> Any:
    kind = "Job" if role == "migrate" else "Deployment"
    return of(resources, kind, f"-{role}")["spec"]["template"]["spec"]["containers"][0]


def pod(resources: list[Any], role: str) -> Any:
    return of(resources, "Deployment", f"-{role}")["spec"]["template"]["spec"]


def settings(resources: list[Any]) -> dict[str, str]:
    found = next(each for each in resources if each["kind"] == "ConfigMap" and "settings" in each["metadata"]["name"])
    data: dict[str, str] = found["data"]
    return data


MISTAKES: dict[str, tuple[Callable[[list[Any]], object], str]] = {
    "a field that does not exist": (
        lambda all_: container(all_, "web").update(readynessProbe={}),
        "readynessProbe: unknown field",
    ),
    "a field of another type": (lambda all_: of(all_, "Deployment", "-web")["spec"].update(replicas="2"), "spec.replicas"),
    "a missing field": (lambda all_: of(all_, "Deployment", "-web")["spec"].pop("selector"), "spec.selector"),
    "a kind that does not exist": (lambda all_: of(all_, "Job", "-migrate").update(apiVersion="batch/v1beta1"), "no such kind"),
    "an unknown field of another project's kind": (
        lambda all_: of(all_, "ScaledObject", "-web")["spec"].update(maxReplicas=3),
        "maxReplicas",
    ),
    "a role that does not exist": (lambda all_: container(all_, "worker").update(args=["clock"]), "role is clock"),
    "another port": (lambda all_: container(all_, "web")["ports"][0].update(containerPort=8080), "the port http is 8080"),
    "a probe of no port": (
        lambda all_: container(all_, "worker")["livenessProbe"]["httpGet"].update(port="http"),
        "no port http",
    ),
    "no time to drain": (lambda all_: pod(all_, "web").update(terminationGracePeriodSeconds=30), "needs? 610 and 20 more"),
    "a longer drain": (lambda all_: settings(all_).update(AGENTHOST_DRAIN_SECONDS="900"), "need 910 and 20 more"),
    "a setting that does not exist": (lambda all_: settings(all_).update(AGENTHOST_DRAINS="1"), "AGENTHOST_DRAINS is no setting"),
    "a file that is not mounted": (
        lambda all_: settings(all_).update(REDIS_URL_FILE="/run/redis"),
        "nothing is mounted at /run/redis",
    ),
    "a password in a setting": (lambda all_: settings(all_).update(REDIS_URL="redis://:a@r"), "belongs in a secret"),
    "another user": (lambda all_: pod(all_, "web")["securityContext"].update(runAsUser=0), "user 10001"),
    "a writable root": (
        lambda all_: container(all_, "web")["securityContext"].update(readOnlyRootFilesystem=False),
        "root is not read-only",
    ),
    "a capability": (
        lambda all_: container(all_, "web")["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
        "has capabilities",
    ),
    "a worker that may mount": (
        lambda all_: container(all_, "worker")["securityContext"].update(procMount="Unmasked"),
        "only the terminal service",
    ),
    "variables of services": (lambda all_: pod(all_, "web").pop("enableServiceLinks"), "enableServiceLinks"),
    "a token of the cluster": (lambda all_: pod(all_, "web").pop("automountServiceAccountToken"), "token"),
    "no limit on memory": (lambda all_: container(all_, "web")["resources"].pop("limits"), "no limit on memory"),
    "a budget of nothing": (
        lambda all_: of(all_, "PodDisruptionBudget", "-web")["spec"]["selector"]["matchLabels"].update(a="b"),
        "selects no pod",
    ),
    "a fixed number of scaled pods": (lambda all_: of(all_, "Deployment", "-web")["spec"].update(replicas=2), "fixed number"),
    "two budgets for a pod": (
        lambda all_: all_.append(copy.deepcopy(of(all_, "PodDisruptionBudget", "-web"))),
        "more than one PodDisruptionBudget",
    ),
    "a pool that is scaled by another's queue": (
        lambda all_: container(all_, "worker-heavy").update(args=["worker", "--queues", "light"]),
        "counts the queue heavy; the queues of its target are light",
    ),
    "an open network": (lambda all_: all_.remove(of(all_, "NetworkPolicy", "-deny")), "not denied by default"),
    "a policy for a missing port": (
        lambda all_: of(all_, "NetworkPolicy", "-metrics")["spec"]["ingress"][0]["ports"][0].update(port="metric"),
        "the port metric",
    ),
    "a way in to nothing": (lambda all_: all_.remove(of(all_, "Service", "-web")), "no Service agenthost-web"),
    "a secret that nobody makes": (
        lambda all_: pod(all_, "web")["volumes"][-4]["secret"].update(secretName="agenthost-secret"),
        "agenthost-secret is neither",
    ),
}


def test_a_pool_runs_its_queue_alone_and_is_otherwise_as_the_other_workers() -> None:
    heavy, other = pod(EVERYTHING, "worker-heavy"), pod(EVERYTHING, "worker")
    assert container(EVERYTHING, "worker-heavy")["args"] == ["worker", "--queues", "heavy"]
    for name in ("securityContext", "terminationGracePeriodSeconds", "enableServiceLinks", "automountServiceAccountToken"):
        assert heavy[name] == other[name]
    labels = {"app.kubernetes.io/name": "agenthost", "app.kubernetes.io/component": "worker-heavy"}
    policies = [each for each in EVERYTHING if each["kind"] == "NetworkPolicy"]
    selecting = {each["metadata"]["name"] for each in policies if check_kubernetes.selects(each["spec"]["podSelector"], labels)}
    assert selecting == {"agenthost-deny", "agenthost-metrics", "agenthost-data", "agenthost-internet"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    change, message = MISTAKES[mistake]
    resources = copy.deepcopy(EVERYTHING)
    change(resources)
    found = check_kubernetes.faults(resources)
    assert any(re.search(message, fault) for fault in found), found


def test_pods_are_scaled_by_metrics_that_exist() -> None:
    queries = [
        trigger["metadata"]["query"]
        for each in EVERYTHING
        if each["kind"] == "ScaledObject"
        for trigger in each["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    assert len(queries) == 5
    for name in re.findall(r"agenthost_\w+", " ".join(queries)):
        assert f"`{name}`" in METRICS
    namespace = {each["metadata"]["namespace"] for each in EVERYTHING}
    assert set(re.findall(r'namespace="([^"]+)"', " ".join(queries))) == namespace


def test_the_internet_policy_keeps_the_cluster_and_its_metadata_out() -> None:
    (rule,) = of(EVERYTHING, "NetworkPolicy", "-internet")["spec"]["egress"]
    (ipv4, _) = (each["ipBlock"] for each in rule["to"])
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"} <= set(ipv4["except"])
    assert not check_kubernetes.selects(
        of(EVERYTHING, "NetworkPolicy", "-internet")["spec"]["podSelector"],
        {"app.kubernetes.io/name": "agenthost", "app.kubernetes.io/component": "terminals"},
    )


def test_the_image_is_that_of_compose() -> None:
    compose = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())
    image = compose["services"]["web"]["image"]
    assert {each.container["image"].rpartition("/")[2] for each in check_kubernetes.pods(EVERYTHING)} == {image}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("namePrefix: a-\n", "unknown fields: namePrefix"),
        ("patches:\n  - target: {kind: Pod, name: a}\n    patch: '[]'\n", "nothing to patch: Pod a"),
        ("configMapGenerator:\n  - name: a\n    behavior: merge\n", "cannot be generated"),
    ],
)
def test_what_the_renderer_does_not_know_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kustomization.yaml").write_text(text)
    with pytest.raises(kustomization.RenderError, match=message):
        kustomization.render(tmp_path)
