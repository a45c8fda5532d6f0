"""Agents and the settings of their sessions in AHP 0.1 (R230, R231, R388)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    """``card``: the core's description of an agent."""
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
    """The settings of the agent's sessions; clients may change all of them at any time."""
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


def resolved(spec: AgentSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values with defaults for missing and invalid ones (R231)."""
    values: dict[str, Any] = {}
    for name, schema in config_schema(spec)["properties"].items():
        value = config.get(name)
        option = spec.option(name) if name != APPROVAL else None
        if option is not None and option.type == "secret":
            # Secrets are never sent back (R235).
            if isinstance(value, str) and value:
                values[name] = UNCHANGED_SECRET
        elif isinstance(value, str) and value in schema.get("enum", [value]):
            values[name] = value
        else:
            values[name] = schema["default"]
    return values


def split(config: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A client's configuration as options and the approval setting (None: not in it)."""
    return {name: value for name, value in config.items() if name != APPROVAL}, config.get(APPROVAL)


def masked(spec: AgentSpec | None, config: Any) -> Any:
    """A configuration with placeholders for its secrets, for echoes."""
    if not isinstance(config, Mapping):
        return config
    secret = {option.name for option in spec.options if option.type == "secret"} if spec is not None else None
    return {
        name: UNCHANGED_SECRET if isinstance(value, str) and (secret is None or name in secret) else value
        for name, value in config.items()
    }
