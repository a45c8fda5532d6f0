"""The effect of each action of a client of AHP 0.9 or 1.0: one core call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sessions_app.ahp.versions.v0_1.dispatch.effects import EFFECTS as OF_0_1
from sessions_app.ahp.versions.v0_1.dispatch.types import Refusal, ValidAction
from sessions_app.ahp.versions.v0_9 import messages
from sessions_app.ahp.versions.v0_9.dispatch.echoes import duration_of
from sessions_app.ahp.versions.v0_9.plugins import entry_of
from sessions_app.core import turns
from sessions_app.core.records import clients, session_changes
from sessions_app.core.sessions import inbox

Effect = Callable[[ValidAction], None]

# --- turns and messages ---


def _turn_started(valid: ValidAction) -> None:
    action = valid.action
    if "queuedMessageId" in action:
        raise Refusal("queuedMessageId: only the host starts turns with queued messages")
    messages.start_turn(
        valid.caller,
        valid.session,
        action["message"],
        turn_id=action["turnId"],
        started_at=_time(action["startedAt"]),
        files=valid.files,
        dispatched=valid.dispatched,
    )


_TIME = re.compile(
    r"(19[7-9]|2[0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
"""Clients add the turn's duration to it, so the sum must be in the calendar too."""


def _time(text: str) -> str:
    try:
        if _TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise Refusal("startedAt must be an ISO 8601 time from 1970 to 2999 with its zone, such as 2026-01-01T00:00:00.000Z")


def _turn_cancelled(valid: ValidAction) -> None:
    action = valid.action
    lasted = duration_of(action["duration"])
    turns.cancel_turn(valid.caller, valid.session, action["turnId"], duration_ms=lasted, dispatched=valid.dispatched)


def _turn_resume(valid: ValidAction) -> None:
    turns.reopen(valid.caller, valid.session, valid.action["turnId"], dispatched=valid.dispatched)


def _pending_set(valid: ValidAction) -> None:
    action = valid.action
    message = messages.user_message(action["message"])
    messages.check_model(valid.caller, valid.session, action["message"])
    inbox.put(
        valid.caller,
        valid.session,
        action["kind"],
        action["id"],
        message,
        files=messages.files_of(valid.caller, action["message"], valid.files),
        dispatched=valid.dispatched,
    )


def _draft(valid: ValidAction) -> None:
    draft: Mapping[str, Any] | None = valid.action.get("draft")
    if draft is not None:
        if draft["origin"]["kind"] != "user":
            raise Refusal("draft.origin.kind: a draft is a message of the kind user")
        draft = messages.shown(draft)
    session_changes.change_draft(valid.caller, valid.session, draft, dispatched=valid.dispatched)


def _chat_read(valid: ValidAction) -> None:
    session_changes.mark_chat_read(valid.caller, valid.session, read=valid.action["isRead"], dispatched=valid.dispatched)


# --- active clients and their plugins ---


def _client_set(valid: ValidAction) -> None:
    client = valid.action["activeClient"]
    if client["clientId"] != valid.dispatched.client:
        raise Refusal("activeClient.clientId must be your own client id")
    entry = entry_of(client)
    assert entry is not None
    clients.join(valid.caller, valid.session, entry, beside_others=True, dispatched=valid.dispatched)


def _client_removed(valid: ValidAction) -> None:
    if valid.action["clientId"] != valid.dispatched.client:
        raise Refusal("clientId must be your own client id")
    if not clients.is_active(valid.session.pk, valid.dispatched.client):
        raise Refusal("you are not an active client of this session")
    clients.leave(valid.caller, valid.session, valid.dispatched.client, dispatched=valid.dispatched)


def _toggled(valid: ValidAction) -> None:
    action = valid.action
    session_changes.decide_customization(
        valid.caller, valid.session, action["id"], action["enablement"], dispatched=valid.dispatched
    )


# --- what is refused always ---


def _never(reason: str) -> Effect:
    def refuse(_valid: ValidAction) -> None:
        raise Refusal(reason)

    return refuse


_DIRECTORIES = _never("the working directories of a session cannot be changed here")
_SERVERS = _never("this session has no such MCP server")

_AS_IN_0_1 = {
    "session": ("titleChanged", "isReadChanged", "isArchivedChanged", "configChanged"),
    "chat": (
        *("toolCallConfirmed", "toolCallComplete", "toolCallContentChanged", "toolCallResultConfirmed"),
        *("pendingMessageRemoved", "queuedMessagesReordered", "inputAnswerChanged", "inputCompleted", "truncated"),
    ),
}

EFFECTS: Mapping[str, Effect] = {
    **{f"{kind}/{name}": OF_0_1[f"session/{name}"] for kind, names in _AS_IN_0_1.items() for name in names},
    "chat/turnStarted": _turn_started,
    "chat/turnCancelled": _turn_cancelled,
    "chat/turnResume": _turn_resume,
    "chat/pendingMessageSet": _pending_set,
    "chat/draftChanged": _draft,
    "chat/isReadChanged": _chat_read,
    "chat/isArchivedChanged": OF_0_1["session/isArchivedChanged"],
    "chat/workingDirectorySet": _DIRECTORIES,
    "chat/workingDirectoryRemoved": _DIRECTORIES,
    "session/workingDirectorySet": _DIRECTORIES,
    "session/workingDirectoryRemoved": _DIRECTORIES,
    "session/workingDirectoryReplaced": _DIRECTORIES,
    "session/activeClientSet": _client_set,
    "session/activeClientRemoved": _client_removed,
    "session/customizationToggled": _toggled,
    "session/mcpServerStartRequested": _SERVERS,
    "session/mcpServerStopRequested": _SERVERS,
    "session/mcpServerBackgroundRequested": _SERVERS,
}
