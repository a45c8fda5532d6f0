"""What an accepted action's echo says: the action as it came, without what no state will hold.

Whoever folds the echo must arrive at the state that the next snapshot shows (R70). So a null for an optional member is
left out (R36), and of the values that the host keeps in a form of its own only what it keeps is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.commands.sessions import entry_of
from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.turns import Outcome


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    return UserMessage.of(given).document()


def _client(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    entry = entry_of(given)
    return None if entry is None else values.active_client(entry.document())


def _tools(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [values.tool_definition(values.tool_from(tool)) for tool in given]


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """A client's account of what its tool did, as the core takes it."""
    return Outcome(
        success=result["success"],
        message=result["pastTenseMessage"],
        content=result.get("content"),
        structured=result.get("structuredContent"),
        error=result.get("error"),
    )


def _result(given: Mapping[str, Any]) -> dict[str, Any]:
    outcome = outcome_of(given).document()
    return values.tool_result("", failed=not outcome["success"], outcome=outcome)


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    return values.model_selection(given["id"], given.get("config"))


_KEPT: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("session/turnStarted", "userMessage"): _message,
    ("session/pendingMessageSet", "userMessage"): _message,
    ("session/toolCallConfirmed", "userSuggestion"): _message,
    ("session/toolCallComplete", "result"): _result,
    ("session/activeClientChanged", "activeClient"): _client,
    ("session/activeClientToolsChanged", "tools"): _tools,
    ("session/modelChanged", "model"): _model,
}


def echo_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """``action``: as the host understands it."""
    said = dict(action)
    for member, value in action.items():
        keep = _KEPT.get((action["type"], member))
        if keep is not None:
            said[member] = keep(value)
    return said
