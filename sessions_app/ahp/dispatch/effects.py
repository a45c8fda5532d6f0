"""What each action of a client does: one core call each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.commands.sessions import entry_of
from sessions_app.ahp.dispatch.facts import Judged, Refusal
from sessions_app.ahp.projection.v0_1 import agents as words
from sessions_app.ahp.projection.v0_1 import values
from sessions_app.core import agents, clients, session_changes, turns
from sessions_app.core.user_messages import UserMessage, content_of

# --- the session ---


def _title(judged: Judged) -> None:
    session_changes.rename(judged.caller, judged.session, judged.action["title"], dispatched=judged.dispatched)


def _read(judged: Judged) -> None:
    session_changes.mark_read(judged.caller, judged.session, read=judged.action["isRead"], dispatched=judged.dispatched)


def _archived(judged: Judged) -> None:
    session_changes.archive(judged.caller, judged.session, archived=judged.action["isArchived"], dispatched=judged.dispatched)


def _model(judged: Judged) -> None:
    model = judged.action["model"]
    session_changes.change_model(judged.caller, judged.session, model["id"], model.get("config"), dispatched=judged.dispatched)


def _config(judged: Judged) -> None:
    options, approval = words.split(judged.action["config"])
    if approval not in (None, "ask", "auto") or (approval is None and values.APPROVAL in judged.action["config"]):
        raise Refusal(f"config.{values.APPROVAL}: the value is not one of the choices")
    session_changes.change_settings(
        judged.caller,
        judged.session,
        options=options,
        approval=approval,
        replace=judged.action.get("replace", False),
        dispatched=judged.dispatched,
    )


def _customization(judged: Judged) -> None:
    action = judged.action
    session_changes.toggle_customization(
        judged.caller, judged.session, action["uri"], enabled=action["enabled"], dispatched=judged.dispatched
    )


# --- turns ---


def _turn_started(judged: Judged) -> None:
    action = judged.action
    if "queuedMessageId" in action:
        raise Refusal("the host alone begins a turn with a queued message")
    said = UserMessage.of(action["userMessage"])
    content = content_of(said, agents.for_turn(judged.caller, judged.session).images)
    turns.start(
        judged.caller,
        judged.session,
        content=content,
        turn_id=action["turnId"],
        said=said,
        alone=True,
        dispatched=judged.dispatched,
    )


# --- the active client ---


def _active_client(judged: Judged) -> None:
    given = judged.action["activeClient"]
    if given is None:
        clients.leave(judged.caller, judged.session, judged.dispatched.client, dispatched=judged.dispatched)
        return
    if given["clientId"] != judged.dispatched.client:
        raise Refusal("activeClient.clientId is not your own")
    entry = entry_of(given)
    assert entry is not None
    clients.join(judged.caller, judged.session, entry, dispatched=judged.dispatched)


def _client_tools(judged: Judged) -> None:
    tools = [values.tool_from(tool) for tool in judged.action["tools"]]
    clients.change_tools(judged.caller, judged.session, tools, dispatched=judged.dispatched)


EFFECTS: Mapping[str, Callable[[Judged], None]] = {
    "session/turnStarted": _turn_started,
    "session/titleChanged": _title,
    "session/isReadChanged": _read,
    "session/isArchivedChanged": _archived,
    "session/modelChanged": _model,
    "session/configChanged": _config,
    "session/customizationToggled": _customization,
    "session/activeClientChanged": _active_client,
    "session/activeClientToolsChanged": _client_tools,
}
