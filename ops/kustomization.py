"""Renders ops/kubernetes without kubectl, so that it can be checked on any machine.

It knows the part of kustomize that these files use: resources, components, a namespace, labels, images, generated ConfigMaps
and patches (by merging, and JSON patches that add, replace or remove). Anything else is an error. A test compares it with
`kubectl kustomize`; the digests in the names of ConfigMaps are its own.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]

_KNOWN = {
    "apiVersion", "kind", "resources", "components", "namespace", "labels", "images", "configMapGenerator", "patches",
}  # fmt: skip
# The field that tells the entries of a list apart when it is merged; other lists are replaced.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
_REFERENCES = {"configMapRef", "configMap", "configMapKeyRef"}


class RenderError(ValueError):
    """The files use something that is wrong, or that this renderer does not know."""


@dataclass
class _Accumulated:
    resources: list[Resource] = field(default_factory=list)
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)


def render(directory: Path, components: Sequence[Path] = ()) -> list[Resource]:
    """The objects that `kubectl apply -k` would send; with ``components`` instead of those that the directory names."""
    found = _Accumulated()
    namespace = _accumulate(directory, found, components)
    digests = {name: _digest(data) for name, data in found.config_maps.items()}
    for name, data in found.config_maps.items():
        labels = {"app.kubernetes.io/name": "agenthost"}
        metadata = {"name": f"{name}-{digests[name]}", "labels": labels}
        found.resources.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    for resource in found.resources:
        if namespace:
            resource["metadata"]["namespace"] = namespace
        for reference in _references(resource):
            if reference.get("name") in digests:
                reference["name"] += f"-{digests[reference['name']]}"
    return found.resources


def _accumulate(directory: Path, found: _Accumulated, components: Sequence[Path] = ()) -> str | None:
    file = directory / "kustomization.yaml"
    wanted: dict[str, Any] = yaml.safe_load(file.read_text())
    if unknown := set(wanted) - _KNOWN:
        raise RenderError(f"{file}: unknown fields: {', '.join(sorted(unknown))}")
    for name in wanted.get("resources", []):
        path = directory / name
        if path.is_dir():
            _accumulate(path, found)
        else:
            found.resources += [one for one in yaml.safe_load_all(path.read_text()) if one]
    for generator in wanted.get("configMapGenerator", []):
        _generate(directory, generator, found.config_maps)
    for component in components or [directory / name for name in wanted.get("components", [])]:
        _accumulate(component, found)
    for labels in wanted.get("labels", []):
        for resource in found.resources:
            _label(resource, labels["pairs"])
    for patch in wanted.get("patches", []):
        _patch(directory, patch, found.resources)
    for image in wanted.get("images", []):
        for container in _containers(found.resources):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    return wanted.get("namespace")


def _generate(directory: Path, generator: dict[str, Any], config_maps: dict[str, dict[str, str]]) -> None:
    data: dict[str, str] = {}
    for name in generator.get("files", []):
        data[name] = (directory / name).read_text()
    for name in generator.get("envs", []):
        lines = (line.strip() for line in (directory / name).read_text().splitlines())
        data |= {key: value for key, _, value in (line.partition("=") for line in lines if line and line[0] != "#")}
    name, behavior = generator["name"], generator.get("behavior", "create")
    if (name in config_maps) != (behavior != "create"):
        raise RenderError(f"{directory}: the ConfigMap {name} cannot be generated with the behavior {behavior}")
    config_maps[name] = {**config_maps[name], **data} if behavior == "merge" else data


def _digest(data: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]


def _label(resource: Resource, pairs: dict[str, str]) -> None:
    places = [resource]
    if "template" in resource.get("spec", {}):
        places.append(resource["spec"]["template"])
    for place in places:
        metadata = place.setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), **pairs}


def _containers(resources: list[Resource]) -> Iterator[dict[str, Any]]:
    for resource in resources:
        pod = resource.get("spec", {}).get("template", {}).get("spec", {})
        yield from (*pod.get("initContainers", []), *pod.get("containers", []))


def _references(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _REFERENCES and isinstance(inner, dict):
                yield inner
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _patch(directory: Path, patch: dict[str, Any], resources: list[Resource]) -> None:
    text = (directory / patch["path"]).read_text() if "path" in patch else patch["patch"]
    change = yaml.safe_load(text)
    if isinstance(change, list):
        wanted = {"kind": patch["target"]["kind"], "name": patch["target"]["name"]}
    else:
        wanted = {"kind": change["kind"], "name": change["metadata"]["name"]}
    matching = [each for each in resources if {"kind": each["kind"], "name": each["metadata"]["name"]} == wanted]
    if not matching:
        raise RenderError(f"{directory}: nothing to patch: {wanted['kind']} {wanted['name']}")
    for resource in matching:
        if isinstance(change, list):
            for operation in change:
                _operate(resource, operation)
        else:
            merged = _merged(resource, change, "")
            resource.clear()
            resource.update(merged)


def _operate(resource: Resource, operation: dict[str, Any]) -> None:
    """One operation of a JSON patch (RFC 6902)."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    place: Any = resource
    try:
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) and last != "-" else last
        match operation["op"]:
            case "remove":
                del place[key]
            case "replace":
                place[key]  # It must be there.
                place[key] = copy.deepcopy(operation["value"])
            case "add" if isinstance(place, list):
                place.insert(len(place) if key == "-" else key, copy.deepcopy(operation["value"]))
            case "add":
                place[key] = copy.deepcopy(operation["value"])
            case other:
                raise RenderError(f"unknown operation of a patch: {other}")
    except (KeyError, IndexError):
        raise RenderError(f"{resource['kind']} {resource['metadata']['name']} has no {operation['path']}") from None


def _merged(old: Any, new: Any, name: str) -> Any:
    """A strategic merge: mappings and keyed lists are merged, and null removes."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = {key: value for key, value in old.items() if not (key in new and new[key] is None)}
        return merged | {key: _merged(old.get(key), value, key) for key, value in new.items() if value is not None}
    key = _MERGE_KEYS.get(name)
    if isinstance(old, list) and isinstance(new, list) and key and all(key in each for each in new):
        changes = {each[key]: each for each in new}
        kept = [_merged(each, changes.pop(each[key]), "") if each[key] in changes else each for each in old]
        # kustomize puts new entries first.
        return [*changes.values(), *kept]
    return copy.deepcopy(new)
