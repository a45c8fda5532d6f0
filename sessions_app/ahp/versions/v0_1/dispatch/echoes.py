"""The echo of an accepted action: the action as received, without values that the host does not store.

A client that applies the echo must have the state of the next snapshot (R70). So nulls for optional members are left out (R36),
and values that the host stores in its own form have only their stored members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.commands.sessions import entry_of
from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.turns import Outcome


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    return UserMessage.of(message).document()


def _client(client: Mapping[str, Any] | None) -> dict[str, Any] | None:
    entry = entry_of(client)
    return None if entry is None else values.active_client(entry.document())


def _tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [values.tool_definition(values.tool_from(tool)) for tool in tools]


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """The result of a client's tool as the core's value."""
    return Outcome(
        success=result["success"],
        message=result["pastTenseMessage"],
        content=result.get("content"),
        structured=result.get("structuredContent"),
        error=result.get("error"),
    )


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    outcome = outcome_of(result).document()
    return values.tool_result("", failed=not outcome["success"], outcome=outcome)


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    return values.model_selection(model["id"], model.get("config"))


_STORED_FORM: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("session/turnStarted", "userMessage"): _message,
    ("session/pendingMessageSet", "userMessage"): _message,
    ("session/toolCallConfirmed", "userSuggestion"): _message,
    ("session/toolCallComplete", "result"): _result,
    ("session/activeClientChanged", "activeClient"): _client,
    ("session/activeClientToolsChanged", "tools"): _tools,
    ("session/modelChanged", "model"): _model,
}


def echo_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """``action``: as read by its shape."""
    echo = dict(action)
    for member, value in action.items():
        stored = _STORED_FORM.get((action["type"], member))
        if stored is not None:
            echo[member] = stored(value)
    return echo
