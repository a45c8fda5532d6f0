"""A session's state and summary in AHP 0.1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from agents_app.spec import AgentSpec
from sessions_app.ahp.versions.v0_1.projection import agent_settings, calls, values
from sessions_app.ahp.versions.v0_1.wire.enumerations import SessionStatus
from sessions_app.core.sessions.entries import SessionEntry
from sessions_app.core.sessions.state import CallView, FormView, SessionState, TurnView
from sessions_app.core.tenancy import agents

_ACTIVITY: Mapping[str, SessionStatus] = {
    "idle": SessionStatus.IDLE,
    "failed": SessionStatus.ERROR,
    "working": SessionStatus.IN_PROGRESS,
    "waiting": SessionStatus.INPUT_NEEDED,
}


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def status_of(state: str, *, read: bool, archived: bool) -> int:
    status = _ACTIVITY[state]
    if read:
        status |= SessionStatus.READ
    if archived:
        status |= SessionStatus.ARCHIVED
    return int(status)


def summary_of(summary: SessionEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "resource": summary.uri,
        "provider": summary.agent,
        "title": summary.title,
        "status": status_of(summary.state, read=summary.read, archived=summary.archived),
        "createdAt": milliseconds(summary.created_at),
        "modifiedAt": milliseconds(summary.modified_at),
    }
    if summary.activity is not None:
        shown["activity"] = summary.activity
    if summary.model is not None:
        shown["model"] = {"id": summary.model}
    if summary.directory is not None:
        shown["workingDirectory"] = summary.directory
    if summary.diffs is not None:
        shown["diffs"] = [values.file_edit(edit, summary.uri) for edit in summary.diffs]
    return shown


def state_of(state: SessionState, spec: AgentSpec | None) -> dict[str, Any]:
    """``spec`` None: the operator has removed the agent; the session can still be read."""
    shown: dict[str, Any] = {
        "summary": summary_of(state.summary),
        "lifecycle": "ready",
        "serverTools": [values.tool_definition(tool) for tool in state.server_tools],
        "turns": [turn_of(turn, state.summary.uri) for turn in state.turns],
        "customizations": [values.customization(each) for each in state.customizations],
    }
    if spec is not None:
        options = {name: value for name, value in state.options.items() if name != agents.MODEL or not agents.has_models(spec)}
        shown["config"] = {
            "schema": agent_settings.config_schema(spec),
            "values": values.config_values(options, state.approval or None),
        }
    if state.clients:
        shown["activeClient"] = values.active_client(state.clients[0])
    if state.live is not None:
        shown["activeTurn"] = _turn(state.live, state.summary.uri)
    if state.steering is not None:
        shown["steeringMessage"] = values.pending_message(state.steering["id"], state.steering["message"])
    if state.queued:
        shown["queuedMessages"] = [values.pending_message(each["id"], each["message"]) for each in state.queued]
    if state.forms:
        shown["inputRequests"] = [_request(form) for form in state.forms]
    return shown


def _request(form: FormView) -> dict[str, Any]:
    return {**form.document, "answers": form.answers} if form.answers else dict(form.document)


# --- turns ---


def turn_of(turn: TurnView, uri: str) -> dict[str, Any]:
    """A turn that has ended; ``uri``: of its session."""
    shown = {**_turn(turn, uri), "state": turn.ending}
    if turn.ending == "error":
        shown["error"] = values.error_info(turn.error)
    return shown


def _turn(turn: TurnView, uri: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": turn.id,
        "userMessage": values.user_message(values.stored_message(turn)),
        "responseParts": [calls.part_of(part, uri, _call) for part in turn.parts],
    }
    if turn.usage is not None:
        tokens = dict(zip(("input_tokens", "output_tokens", "cache_read_tokens"), turn.usage, strict=True))
        shown["usage"] = values.usage(tokens)
    return shown


def _call(call: CallView, uri: str) -> dict[str, Any]:
    if call.shown is not None and call.status != "running":
        call = replace(call, shown=values.still_there(call.shown))
    return calls.call_of(call, uri, values.call_base, values.user_message)
