"""Agents as AHP 0.1 shows them, and what a session of theirs can be configured to (R230, R231, R388)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app import options as agent_options
from agents_app.options import UNCHANGED_SECRET
from agents_app.spec import AgentSpec
from sessions_app.ahp.versions.v0_1.projection.values import APPROVAL
from sessions_app.core.tenancy import agents

_ASK_OR_NOT: Mapping[str, Any] = {
    "type": "string",
    "title": "Tools",
    "description": "Whether the host's tools ask before they run.",
    "default": "ask",
    "enum": ["ask", "auto"],
    "enumLabels": ["Ask first", "Run at once"],
    "sessionMutable": True,
}


def agent_info(card: Mapping[str, Any]) -> dict[str, Any]:
    """``card``: what the core shows of an agent in a root."""
    return {
        "provider": card["name"],
        "displayName": card["title"],
        "description": card["description"],
        "models": [{"id": model, "provider": card["name"], "name": model, **_window(card)} for model in card["models"]],
    }


def _window(card: Mapping[str, Any]) -> dict[str, Any]:
    window: dict[str, Any] = {} if card["context_tokens"] is None else {"maxContextWindow": card["context_tokens"]}
    return {**window, "supportsVision": card["images"]}


def config_schema(spec: AgentSpec) -> dict[str, Any]:
    """The settings of this agent's sessions; all of them may change at any time."""
    properties: dict[str, Any] = {APPROVAL: dict(_ASK_OR_NOT)}
    for option in spec.options:
        if option.name == agents.MODEL and agents.has_models(spec):
            continue
        shown: dict[str, Any] = {"type": "string", "title": option.title or option.name}
        if option.description:
            shown["description"] = option.description
        if option.type != "secret":
            shown["default"] = option.default
        if option.type == "select":
            shown["enum"] = list(option.options)
        properties[option.name] = {**shown, "sessionMutable": True}
    return {"type": "object", "properties": properties}


def resolved(spec: AgentSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values with defaults filled in; what does not fit is replaced by its default (R231)."""
    values: dict[str, Any] = {}
    for name, schema in config_schema(spec)["properties"].items():
        value = given.get(name)
        option = spec.option(name) if name != APPROVAL else None
        if option is not None and option.type == "secret":
            # Whatever it is, it is not said again (R235).
            if isinstance(value, str) and value:
                values[name] = UNCHANGED_SECRET
        elif isinstance(value, str) and value in schema.get("enum", [value]):
            values[name] = value
        else:
            values[name] = schema["default"]
    return values


def split(config: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A client's configuration as the core takes it: options, and the setting of tools (None: not given)."""
    return {name: value for name, value in config.items() if name != APPROVAL}, config.get(APPROVAL)


def masked(spec: AgentSpec | None, config: Any) -> Any:
    """A configuration without its secrets, to be said again."""
    if not isinstance(config, Mapping):
        return config
    secret = {option.name for option in spec.options if option.type == "secret"} if spec is not None else None
    return {
        name: UNCHANGED_SECRET if isinstance(value, str) and (secret is None or name in secret) else value
        for name, value in config.items()
    }


def property_faults(spec: AgentSpec, config: Mapping[str, Any]) -> list[str]:
    """What is wrong with values for this agent's settings, in words for people."""
    options, approval = split(config)
    found = [f"{name}: {detail}" for name, detail in agent_options.faults(spec, options)]
    if APPROVAL in config and approval not in _ASK_OR_NOT["enum"]:
        found.append(f"{APPROVAL}: The value is not one of the choices.")
    return found
