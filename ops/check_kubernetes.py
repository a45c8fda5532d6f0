"""Checks ops/kubernetes without a cluster: what is rendered is valid for Kubernetes' API, and fits the code.

Two renderings are checked: the example overlay, and one with every component. The kinds of KEDA, the Prometheus operator and the
Gateway API are checked against ops/kubernetes/other_kinds.json, which has only the fields that are used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenthost.env import ROLES
from ops import kubernetes_types, kustomization
from ops.check_container import ROOT

FOLDER = ROOT / "ops" / "kubernetes"
EXAMPLE = FOLDER / "overlays" / "example"
Resource = dict[str, Any]

USER = 10001
"""The user of the Dockerfile."""
PORTS = {"http": "AGENTHOST_PORT", "metrics": "AGENTHOST_METRICS_PORT"}
_MARGIN_SECONDS = 20
_SECRETS = {"agenthost-secrets", "agenthost-owner", "agenthost-providers", "agenthost-tls"}
"""Secrets that an operator creates; docs/production.md has the commands."""


@dataclass(frozen=True)
class Pod:
    """The pods of a Deployment or Job, and their only container."""

    name: str
    role: str
    labels: dict[str, str]
    spec: dict[str, Any]
    container: dict[str, Any]
    settings: dict[str, str]
    """What the container's environment will be, without secrets."""


def rendered() -> dict[str, list[Resource]]:
    return {"example": kustomization.render(EXAMPLE), "with all components": with_all_components()}


def with_all_components() -> list[Resource]:
    """The example with every component, those included that it leaves out."""
    there = sorted(each.parent for each in FOLDER.glob("components/*/kustomization.yaml"))
    # Terminals patch what workspaces add.
    return kustomization.render(EXAMPLE, sorted(there, key=lambda each: each.name == "terminals"))


def pods(resources: list[Resource]) -> Iterator[Pod]:
    config_maps = {each["metadata"]["name"]: each["data"] for each in resources if each["kind"] == "ConfigMap"}
    for resource in resources:
        if resource["kind"] in ("Deployment", "Job"):
            template = resource["spec"]["template"]
            (container,) = template["spec"]["containers"]
            settings: dict[str, str] = {}
            for source in container.get("envFrom", []):
                settings |= config_maps.get(source.get("configMapRef", {}).get("name"), {})
            settings |= {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
            labels = template["metadata"]["labels"]
            yield Pod(resource["metadata"]["name"], container["args"][0], labels, template["spec"], container, settings)


def faults(resources: list[Resource]) -> list[str]:
    found = []
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        found += [f"{name}: {fault}" for fault in kubernetes_types.faults(resource)]
    if found:
        return found
    all_pods = list(pods(resources))
    for pod in all_pods:
        found += [f"{pod.name}: {fault}" for fault in (*_pod_faults(pod, resources), *setting_faults(pod.settings), *_times(pod))]
        found += [f"{pod.name}: {fault}" for fault in _confinement_faults(pod)]
    return found + _selector_faults(resources, all_pods)


def _pod_faults(pod: Pod, resources: list[Resource]) -> list[str]:
    container, found = pod.container, []
    if pod.role not in ROLES:
        found.append(f"its role is {pod.role}, which ops/entrypoint does not know")
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    for name, port in ports.items():
        wanted = int(pod.settings.get(PORTS[name], "8000"))
        if port != wanted:
            found.append(f"the port {name} is {port}, but {PORTS[name]} is {wanted}")
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container.get(kind, {}).get("httpGet")
        if get and get["port"] not in ports:
            found.append(f"{kind}: it has no port {get['port']}")
    if pod.role != "migrate" and not ("startupProbe" in container and "livenessProbe" in container):
        found.append("it has no startupProbe or no livenessProbe")
    volumes = {each["name"] for each in pod.spec.get("volumes", [])}
    mounts = {each["mountPath"]: each["name"] for each in container.get("volumeMounts", [])}
    found += [f"it mounts {name}, which is no volume" for name in sorted(set(mounts.values()) - volumes)]
    found += [f"its volume {name} is not mounted" for name in sorted(volumes - set(mounts.values()))]
    there = {each["metadata"]["name"] for each in resources if each["kind"] in ("ConfigMap", "PersistentVolumeClaim")}
    for name in _names_in(pod.spec):
        if name not in there | _SECRETS:
            found.append(f"{name} is neither rendered nor a secret of docs/production.md")
    for name, value in pod.settings.items():
        if name.endswith(("_FILE", "_DIR")) and not any(value.startswith(f"{path}/") or value == path for path in mounts):
            found.append(f"{name}: nothing is mounted at {value}")
    if any("://" in value and "@" in value for value in pod.settings.values()):
        found.append("an address with a password is in its environment; it belongs in a secret")
    return found


def _names_in(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in spec.get("volumes", []):
        for kind, field in (("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName")):
            if kind in volume:
                yield volume[kind][field]
    for container in spec["containers"]:
        for source in container.get("envFrom", []):
            yield next(iter(source.values()))["name"]


def setting_faults(settings: Mapping[str, str]) -> list[str]:
    """Names that the server does not read."""
    read = set(re.findall(r'"([A-Z_]+)"', (ROOT / "agenthost" / "settings.py").read_text()))
    return [f"{name} is no setting" for name in settings if not {name, name.removesuffix("_FILE")} & read]


def _times(pod: Pod) -> list[str]:
    """The pod may take as long to stop as its settings allow, and a little more."""
    drain, grace = int(pod.settings["AGENTHOST_DRAIN_SECONDS"]), int(pod.settings["AGENTHOST_WORKER_GRACE_SECONDS"])
    command = pod.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    needed = {"web": int(command[1]) + drain, "worker": grace + drain}.get(pod.role)
    given = pod.spec.get("terminationGracePeriodSeconds", 30)
    if needed is not None and given != needed + _MARGIN_SECONDS:
        return [f"terminationGracePeriodSeconds is {given}; its settings need {needed} and {_MARGIN_SECONDS} more"]
    return []


def _confinement_faults(pod: Pod) -> list[str]:
    spec, own = pod.spec, pod.container["securityContext"]
    general, found = spec["securityContext"], []
    if (general.get("runAsUser"), general.get("runAsNonRoot"), general.get("fsGroup")) != (USER, True, USER):
        found.append(f"it does not run as user {USER}")
    if not own.get("readOnlyRootFilesystem") or own.get("allowPrivilegeEscalation") is not False:
        found.append("its root is not read-only, or its processes may gain privileges")
    if own.get("capabilities") != {"drop": ["ALL"]} or own.get("privileged"):
        found.append("it has capabilities")
    if general.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.append("its system calls are not filtered")
    loosened = own.keys() & {"procMount", "seccompProfile", "appArmorProfile"}
    if loosened and pod.role != "terminals":
        found.append(f"{', '.join(sorted(loosened))}: only the terminal service needs this")
    if pod.role == "terminals" and spec.get("hostUsers") is not False:
        found.append("procMount: Unmasked needs hostUsers: false")
    if spec.get("enableServiceLinks") is not False:
        found.append("Kubernetes would set AGENTHOST_… variables for services (enableServiceLinks)")
    if spec.get("automountServiceAccountToken") is not False:
        found.append("it gets a token of the cluster, which it does not need")
    if spec.get("hostNetwork") or spec.get("hostPID"):
        found.append("it shares namespaces of the machine")
    resources = pod.container.get("resources", {})
    found += [f"no request of {what}" for what in ("cpu", "memory") if what not in resources.get("requests", {})]
    if "memory" not in resources.get("limits", {}):
        found.append("no limit on memory")
    for volume in spec.get("volumes", []):
        if "hostPath" in volume or ("emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]):
            found.append(f"the volume {volume['name']} is of the machine, or without a limit")
    return found


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    for rule in selector.get("matchExpressions", []):
        if (labels.get(rule["key"]) in rule["values"]) != (rule["operator"] == "In"):
            return False
    return True


def _selector_faults(resources: list[Resource], all_pods: list[Pod]) -> list[str]:
    """Each selector selects a pod, each port is one of these pods, and each reference is to an object that is there."""
    found = []
    named = {(each["kind"], each["metadata"]["name"]): each for each in resources}
    for (kind, name), resource in named.items():
        found += [f"{kind} {name}: {fault}" for fault in _reference_faults(kind, resource.get("spec", {}), named, all_pods)]
    denied = [each for each in resources if each["kind"] == "NetworkPolicy" and not each["spec"].keys() & {"ingress", "egress"}]
    open_pods = [pod for pod in all_pods if not any(selects(each["spec"]["podSelector"], pod.labels) for each in denied)]
    found += [f"{pod.name}: its network is not denied by default" for pod in open_pods]
    budgets = [each for each in resources if each["kind"] == "PodDisruptionBudget"]
    for pod in all_pods:
        # Kubernetes evicts no pod of two budgets.
        if sum(selects(each["spec"]["selector"], pod.labels) for each in budgets) > 1:
            found.append(f"{pod.name}: it has more than one PodDisruptionBudget")
    return found


def _reference_faults(
    kind: str, spec: dict[str, Any], named: Mapping[tuple[str, str], Resource], all_pods: list[Pod]
) -> Iterator[str]:
    selector = spec.get("podSelector") if kind == "NetworkPolicy" else spec.get("selector")
    if selector is not None:
        chosen = [pod for pod in all_pods if selects({"matchLabels": selector} if kind == "Service" else selector, pod.labels)]
        ports = [each for pod in chosen for each in pod.container.get("ports", [])]
        if not chosen:
            yield "it selects no pod"
        for port in _ports(spec):
            if not any(port in (each["name"], each["containerPort"]) for each in ports):
                yield f"no pod that it selects has the port {port}"
    if kind == "ScaledObject":
        target = named.get(("Deployment", spec["scaleTargetRef"]["name"]))
        if target is None or "replicas" in target["spec"]:
            yield "its target is missing, or has a fixed number of replicas"
        else:
            served = _queues(target["spec"]["template"]["spec"]["containers"][0]["args"])
            for queue in re.findall(r'queue="([^"]*)"', str(spec["triggers"])):
                if queue not in served:
                    yield f"it counts the queue {queue}; the queues of its target are {', '.join(served)}"
    if kind in ("Ingress", "HTTPRoute"):
        for service in set(re.findall(r"'name': '(agenthost-\w+)'", str(spec.get("rules")))):
            if ("Service", service) not in named:
                yield f"there is no Service {service}"


def _queues(arguments: Sequence[str]) -> list[str]:
    """The queues that a worker with these arguments serves."""
    return arguments[arguments.index("--queues") + 1].split(",") if "--queues" in arguments else ["default"]


def _ports(spec: Mapping[str, Any]) -> Iterator[object]:
    """Ports of the selected pods: of a Service, a policy's `ingress` and a monitor."""
    yield from (each["targetPort"] for each in spec.get("ports", []))
    yield from (each["port"] for rule in spec.get("ingress", []) for each in rule.get("ports", []))
    yield from (each["port"] for each in spec.get("podMetricsEndpoints", []))


def main() -> int:
    try:
        found = [f"ops/kubernetes, {name}: {fault}" for name, resources in rendered().items() for fault in faults(resources)]
    except kustomization.RenderError as error:
        found = [f"ops/kubernetes: {error}"]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
