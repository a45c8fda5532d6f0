"""Whether an object is what Kubernetes' API accepts: no unknown field, none missing, each of its type.

The types are Kubernetes' own, as the package `lightkube-models` has them from the published schema. Definitions of others (KEDA,
the Prometheus operator, the Gateway API) are not in it: of these, ops/kubernetes/other_kinds.json has the fields that are used.
"""

from __future__ import annotations

import importlib
import json
import types
import typing
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

_OTHERS = Path(__file__).resolve().parent / "kubernetes" / "other_kinds.json"


def faults(resource: dict[str, Any]) -> list[str]:
    version, kind = str(resource.get("apiVersion")), str(resource.get("kind"))
    others: dict[str, Any] = json.loads(_OTHERS.read_text())
    if (schema := others["kinds"].get(f"{version} {kind}")) is not None:
        checker = jsonschema.Draft202012Validator({**schema, "$defs": others["$defs"]})
        return [f"{error.json_path.removeprefix('$.')}: {error.message}" for error in checker.iter_errors(resource)]
    group, _, number = version.rpartition("/")
    module = f"lightkube.models.{(group or 'core').partition('.')[0]}_{number}"
    try:
        model = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError):
        return [f"{version} {kind}: Kubernetes has no such kind, nor has {_OTHERS.name}"]
    return _struct(resource, model, "")


def _struct(value: object, model: type[msgspec.Struct], path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: an object is needed"]
    hints = typing.get_type_hints(model)
    fields = {each.encode_name: (each, hints[each.name]) for each in msgspec.structs.fields(model)}
    found = [f"{path}{name}: unknown field of {model.__name__}" for name in value if name not in fields]
    for name, (each, hint) in fields.items():
        if name in value:
            found += _value(value[name], hint, f"{path}{name}")
        elif each.required:
            found.append(f"{path}{name}: {model.__name__} needs it")
    return found


def _value(value: object, hint: Any, path: str) -> list[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        tried = [_value(value, each, path) for each in inner if each is not type(None)]
        return [] if [] in tried else tried[0]
    if origin is list:
        if not isinstance(value, list):
            return [f"{path}: a list is needed"]
        return [fault for index, each in enumerate(value) for fault in _value(each, inner[0], f"{path}[{index}]")]
    if origin is dict or hint is dict:
        if not isinstance(value, dict):
            return [f"{path}: an object is needed"]
        # Names to texts: labels, settings, quantities of resources.
        return [f"{path}.{name}: a string is needed" for name, each in value.items() if not isinstance(each, str)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(value, hint, f"{path}.")
    if isinstance(hint, type) and hint is not object:
        right = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
        return [] if right else [f"{path}: {value!r} is no {hint.__name__}"]
    return []
