"""The effect of each action of a client: one core call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.commands.sessions import entry_of
from sessions_app.ahp.versions.v0_1.dispatch.echoes import outcome_of
from sessions_app.ahp.versions.v0_1.dispatch.types import Refusal, ValidAction
from sessions_app.ahp.versions.v0_1.projection import agent_settings, values
from sessions_app.core import turns
from sessions_app.core.base.user_messages import UserMessage, content_of
from sessions_app.core.records import clients, session_changes
from sessions_app.core.sessions import forms, inbox, truncating
from sessions_app.core.tenancy import agents
from sessions_app.core.turns import Decision

# --- the session ---


def _title(valid: ValidAction) -> None:
    session_changes.rename(valid.caller, valid.session, valid.action["title"], dispatched=valid.dispatched)


def _read(valid: ValidAction) -> None:
    session_changes.mark_read(valid.caller, valid.session, read=valid.action["isRead"], dispatched=valid.dispatched)


def _archived(valid: ValidAction) -> None:
    session_changes.archive(valid.caller, valid.session, archived=valid.action["isArchived"], dispatched=valid.dispatched)


def _model(valid: ValidAction) -> None:
    model = valid.action["model"]
    session_changes.change_model(valid.caller, valid.session, model["id"], model.get("config"), dispatched=valid.dispatched)


def _config(valid: ValidAction) -> None:
    options, approval = agent_settings.split(valid.action["config"])
    if approval not in (None, "ask", "auto") or (approval is None and values.APPROVAL in valid.action["config"]):
        raise Refusal(f"config.{values.APPROVAL}: the value is not one of the choices")
    session_changes.change_settings(
        valid.caller,
        valid.session,
        options=options,
        approval=approval,
        replace=valid.action.get("replace", False),
        dispatched=valid.dispatched,
    )


def _customization(valid: ValidAction) -> None:
    action = valid.action
    session_changes.toggle_customization(
        valid.caller, valid.session, action["uri"], enabled=action["enabled"], dispatched=valid.dispatched
    )


# --- turns ---


def _turn_started(valid: ValidAction) -> None:
    action = valid.action
    if "queuedMessageId" in action:
        raise Refusal("queuedMessageId: only the host starts turns with queued messages")
    message = UserMessage.of(action["userMessage"])
    content = content_of(message, agents.for_turn(valid.caller, valid.session).images, valid.files)
    turns.start(
        valid.caller,
        valid.session,
        content=content,
        turn_id=action["turnId"],
        as_written=message,
        only_if_idle=True,
        dispatched=valid.dispatched,
    )


def _turn_cancelled(valid: ValidAction) -> None:
    turns.cancel_turn(valid.caller, valid.session, valid.action["turnId"], dispatched=valid.dispatched)


def _truncated(valid: ValidAction) -> None:
    truncating.truncate(valid.caller, valid.session, valid.action.get("turnId"), dispatched=valid.dispatched)


# --- tool calls ---


def _confirmed(valid: ValidAction) -> None:
    action = valid.action
    turn, call = action["turnId"], action["toolCallId"]
    if action["approved"]:
        decision = Decision(
            approved=True,
            option=action.get("selectedOptionId"),
            input=action.get("editedToolInput"),
            why=action["confirmed"],
        )
    else:
        suggestion, reason = action.get("userSuggestion"), action.get("reasonMessage")
        text = reason["markdown"] if isinstance(reason, dict) else reason or ""
        decision = Decision(
            approved=False,
            option=action.get("selectedOptionId"),
            how=action["reason"],
            reason=text,
            # The reason as sent, unless it is plain text: Markdown, or empty.
            shown_reason=None if text and reason == text else reason,
            suggestion=None if suggestion is None else UserMessage.of(suggestion).document(),
        )
    turns.confirm(valid.caller, valid.session, turn, call, decision, dispatched=valid.dispatched)


def _completed(valid: ValidAction) -> None:
    action = valid.action
    turns.complete(
        valid.caller,
        valid.session,
        action["turnId"],
        action["toolCallId"],
        outcome_of(action["result"]),
        reviewed=action.get("requiresResultConfirmation", False),
        dispatched=valid.dispatched,
    )


def _content_changed(valid: ValidAction) -> None:
    action = valid.action
    turns.show_content(
        valid.caller,
        valid.session,
        action["turnId"],
        action["toolCallId"],
        action["content"],
        dispatched=valid.dispatched,
    )


def _result_confirmed(valid: ValidAction) -> None:
    action = valid.action
    turns.confirm_result(
        valid.caller,
        valid.session,
        action["turnId"],
        action["toolCallId"],
        approved=action["approved"],
        dispatched=valid.dispatched,
    )


# --- pending messages ---


def _pending_set(valid: ValidAction) -> None:
    action = valid.action
    message = UserMessage.of(action["userMessage"])
    inbox.put(
        valid.caller,
        valid.session,
        action["kind"],
        action["id"],
        message,
        files=valid.files,
        dispatched=valid.dispatched,
    )


def _pending_removed(valid: ValidAction) -> None:
    action = valid.action
    inbox.remove(valid.caller, valid.session, action["kind"], action["id"], dispatched=valid.dispatched)


def _reordered(valid: ValidAction) -> None:
    inbox.reorder(valid.caller, valid.session, valid.action["order"], dispatched=valid.dispatched)


# --- forms ---


def _answer_changed(valid: ValidAction) -> None:
    action = valid.action
    forms.change_answer(
        valid.caller,
        valid.session,
        action["requestId"],
        action["questionId"],
        action.get("answer"),
        dispatched=valid.dispatched,
    )


def _input_completed(valid: ValidAction) -> None:
    action = valid.action
    forms.complete(
        valid.caller,
        valid.session,
        action["requestId"],
        action["response"],
        action.get("answers", {}),
        dispatched=valid.dispatched,
    )


# --- the active client ---


def _active_client(valid: ValidAction) -> None:
    client = valid.action["activeClient"]
    if client is None:
        clients.leave(valid.caller, valid.session, valid.dispatched.client, dispatched=valid.dispatched)
        return
    if client["clientId"] != valid.dispatched.client:
        raise Refusal("activeClient.clientId must be your own client id")
    entry = entry_of(client)
    assert entry is not None
    clients.join(valid.caller, valid.session, entry, dispatched=valid.dispatched)


def _client_tools(valid: ValidAction) -> None:
    tools = [values.tool_from(tool) for tool in valid.action["tools"]]
    clients.change_tools(valid.caller, valid.session, tools, dispatched=valid.dispatched)


EFFECTS: Mapping[str, Callable[[ValidAction], None]] = {
    "session/turnStarted": _turn_started,
    "session/turnCancelled": _turn_cancelled,
    "session/truncated": _truncated,
    "session/toolCallConfirmed": _confirmed,
    "session/toolCallComplete": _completed,
    "session/toolCallContentChanged": _content_changed,
    "session/toolCallResultConfirmed": _result_confirmed,
    "session/pendingMessageSet": _pending_set,
    "session/pendingMessageRemoved": _pending_removed,
    "session/queuedMessagesReordered": _reordered,
    "session/inputAnswerChanged": _answer_changed,
    "session/inputCompleted": _input_completed,
    "session/titleChanged": _title,
    "session/isReadChanged": _read,
    "session/isArchivedChanged": _archived,
    "session/modelChanged": _model,
    "session/configChanged": _config,
    "session/customizationToggled": _customization,
    "session/activeClientChanged": _active_client,
    "session/activeClientToolsChanged": _client_tools,
}
