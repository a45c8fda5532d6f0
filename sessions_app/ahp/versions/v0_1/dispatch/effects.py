"""What each action of a client does: one core call each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.commands.sessions import entry_of
from sessions_app.ahp.versions.v0_1.dispatch.echoes import outcome_of
from sessions_app.ahp.versions.v0_1.dispatch.facts import Judged, Refusal
from sessions_app.ahp.versions.v0_1.projection import agents as words
from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core import turns
from sessions_app.core.base.user_messages import UserMessage, content_of
from sessions_app.core.records import clients, session_changes
from sessions_app.core.sessions import forms, inbox, truncating
from sessions_app.core.tenancy import agents
from sessions_app.core.turns import Decision

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
        as_written=said,
        only_if_idle=True,
        dispatched=judged.dispatched,
    )


def _turn_cancelled(judged: Judged) -> None:
    turns.cancel_turn(judged.caller, judged.session, judged.action["turnId"], dispatched=judged.dispatched)


def _truncated(judged: Judged) -> None:
    truncating.truncate(judged.caller, judged.session, judged.action.get("turnId"), dispatched=judged.dispatched)


# --- tool calls ---


def _confirmed(judged: Judged) -> None:
    action = judged.action
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
            # What the words alone do not say: that they are marked up, or that there are none.
            shown_reason=None if text and reason == text else reason,
            suggestion=None if suggestion is None else UserMessage.of(suggestion).document(),
        )
    turns.confirm(judged.caller, judged.session, turn, call, decision, dispatched=judged.dispatched)


def _completed(judged: Judged) -> None:
    action = judged.action
    turns.complete(
        judged.caller,
        judged.session,
        action["turnId"],
        action["toolCallId"],
        outcome_of(action["result"]),
        reviewed=action.get("requiresResultConfirmation", False),
        dispatched=judged.dispatched,
    )


def _content_changed(judged: Judged) -> None:
    action = judged.action
    turns.show_content(
        judged.caller,
        judged.session,
        action["turnId"],
        action["toolCallId"],
        action["content"],
        dispatched=judged.dispatched,
    )


def _result_confirmed(judged: Judged) -> None:
    action = judged.action
    turns.confirm_result(
        judged.caller,
        judged.session,
        action["turnId"],
        action["toolCallId"],
        approved=action["approved"],
        dispatched=judged.dispatched,
    )


# --- messages that wait ---


def _pending_set(judged: Judged) -> None:
    action = judged.action
    message = UserMessage.of(action["userMessage"])
    inbox.put(judged.caller, judged.session, action["kind"], action["id"], message, dispatched=judged.dispatched)


def _pending_removed(judged: Judged) -> None:
    action = judged.action
    inbox.remove(judged.caller, judged.session, action["kind"], action["id"], dispatched=judged.dispatched)


def _reordered(judged: Judged) -> None:
    inbox.reorder(judged.caller, judged.session, judged.action["order"], dispatched=judged.dispatched)


# --- forms ---


def _answer_changed(judged: Judged) -> None:
    action = judged.action
    forms.change_answer(
        judged.caller,
        judged.session,
        action["requestId"],
        action["questionId"],
        action.get("answer"),
        dispatched=judged.dispatched,
    )


def _input_completed(judged: Judged) -> None:
    action = judged.action
    forms.complete(
        judged.caller,
        judged.session,
        action["requestId"],
        action["response"],
        action.get("answers", {}),
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
