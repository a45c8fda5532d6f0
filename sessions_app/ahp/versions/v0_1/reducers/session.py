"""The table of a session's reducers, and the short ones (R410, R411, R430-R435)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.reducers import input_requests, pending, tool_calls, turns
from sessions_app.ahp.versions.v0_1.reducers.config import overlaid
from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, picked, replaced
from sessions_app.ahp.versions.v0_1.reducers.status import marked, summarized
from sessions_app.ahp.versions.v0_1.wire.enumerations import SessionStatus


def _ready(state: Obj, _action: Obj, _now: int) -> Obj:
    # Flags are cleared too (R151): the action comes before any client can set one.
    return summarized(changed(state, lifecycle="ready"), None, status=int(SessionStatus.IDLE))


def _creation_failed(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, lifecycle="creationFailed", creationError=action["error"])


def _title(state: Obj, action: Obj, now: int) -> Obj:
    return summarized(state, now, title=action["title"])


def _model(state: Obj, action: Obj, now: int) -> Obj:
    return summarized(state, now, model=action["model"])


def _is_read(state: Obj, action: Obj, _now: int) -> Obj:
    return marked(state, SessionStatus.READ, on=bool(action["isRead"]))


def _is_archived(state: Obj, action: Obj, _now: int) -> Obj:
    return marked(state, SessionStatus.ARCHIVED, on=bool(action["isArchived"]))


def _activity(state: Obj, action: Obj, _now: int) -> Obj:
    return summarized(state, None, activity=action.get("activity"))


def _diffs(state: Obj, action: Obj, _now: int) -> Obj:
    return summarized(state, None, diffs=action["diffs"])


def _meta(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, _meta=action.get("_meta"))


def _server_tools(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, serverTools=action["tools"])


def _config(state: Obj, action: Obj, now: int) -> Obj:
    after = overlaid(state, action, now)
    return state if after is state else summarized(after, now)


def _active_client(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, activeClient=action.get("activeClient"))


def _active_client_tools(state: Obj, action: Obj, _now: int) -> Obj:
    client = state.get("activeClient")
    return state if client is None else changed(state, activeClient=changed(client, tools=action["tools"]))


def _customizations(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, customizations=action["customizations"])


def _customization_toggled(state: Obj, action: Obj, _now: int) -> Obj:
    entries = state.get("customizations") or []
    index = _place(entries, action["uri"])
    if index is None:
        return state
    return changed(state, customizations=replaced(entries, index, changed(entries[index], enabled=action["enabled"])))


def _customization_updated(state: Obj, action: Obj, _now: int) -> Obj:
    entries = state.get("customizations") or []
    index = _place(entries, action["customization"]["uri"])
    news = {"customization": action["customization"], **picked(action, "enabled", "status", "statusMessage")}
    if index is None:
        return changed(state, customizations=[*entries, {"enabled": False, **news}])
    return changed(state, customizations=replaced(entries, index, {**entries[index], **news}))


def _place(entries: list[Obj], uri: str) -> int | None:
    return found(entries, lambda entry: entry["customization"]["uri"] == uri)


SESSION: Mapping[str, Callable[[Obj, Obj, int], Obj]] = {
    "session/ready": _ready,
    "session/creationFailed": _creation_failed,
    "session/turnStarted": turns.started,
    "session/responsePart": turns.part,
    "session/delta": turns.delta,
    "session/reasoning": turns.reasoning,
    "session/usage": turns.usage,
    "session/turnComplete": turns.completed,
    "session/turnCancelled": turns.cancelled,
    "session/error": turns.failed,
    "session/truncated": turns.truncated,
    "session/toolCallStart": tool_calls.started,
    "session/toolCallDelta": tool_calls.delta,
    "session/toolCallReady": tool_calls.ready,
    "session/toolCallConfirmed": tool_calls.confirmed,
    "session/toolCallComplete": tool_calls.completed,
    "session/toolCallResultConfirmed": tool_calls.result_confirmed,
    "session/toolCallContentChanged": tool_calls.content_changed,
    "session/titleChanged": _title,
    "session/modelChanged": _model,
    "session/isReadChanged": _is_read,
    "session/isArchivedChanged": _is_archived,
    "session/activityChanged": _activity,
    "session/diffsChanged": _diffs,
    "session/metaChanged": _meta,
    "session/serverToolsChanged": _server_tools,
    "session/configChanged": _config,
    "session/activeClientChanged": _active_client,
    "session/activeClientToolsChanged": _active_client_tools,
    "session/customizationsChanged": _customizations,
    "session/customizationToggled": _customization_toggled,
    "session/customizationUpdated": _customization_updated,
    "session/inputRequested": input_requests.requested,
    "session/inputAnswerChanged": input_requests.answer_changed,
    "session/inputCompleted": input_requests.completed,
    "session/pendingMessageSet": pending.message_set,
    "session/pendingMessageRemoved": pending.message_removed,
    "session/queuedMessagesReordered": pending.reordered,
}
