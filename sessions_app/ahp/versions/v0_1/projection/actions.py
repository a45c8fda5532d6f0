"""Events as actions of AHP 0.1, in envelopes: at most one for each event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import orjson

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import terminals, values
from sessions_app.ahp.versions.v0_1.projection.agent_settings import agent_info
from sessions_app.core.base.caller import Sight
from sessions_app.core.base.events import TEXT_KINDS, Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import agent_listings
from sessions_app.core.terminals import listing

PROTOCOL = "ahp/0.1"

Payload = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]


_SESSION_URI = "session_uri"
"""A member that the payload of events with URIs of contents gets here: these are below the session's URI."""


def action_of(event: Event, uri: str) -> dict[str, Any] | None:
    """None if this version has no action for the event."""
    make = _ACTIONS.get(event.kind)
    made = None if make is None else make(_payload(event, uri))
    return None if made is None else _action(event.kind, uri, made)


def _payload(event: Event, uri: str) -> dict[str, Any]:
    payload: dict[str, Any] = exact_json.loads(event.data)
    if event.kind in _WITH_CONTENTS:
        payload[_SESSION_URI] = uri
    return payload


def envelopes(event: Event, channels: Collection[Channel]) -> Iterator[tuple[Channel, str]]:
    """A session or terminal has one channel here."""
    for channel in channels:
        if (envelope := envelope_of(event, channel.uri)) is not None:
            yield channel, envelope


def envelope_of(event: Event, uri: str) -> str | None:
    """The action in its envelope, as JSON text."""
    make = _ACTIONS.get(event.kind)
    if make is None:
        return None
    if event.kind in TEXT_KINDS:
        try:
            return _streamed_envelope(event, uri, make)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass  # It has a lone surrogate, which only the slower codec keeps.
    payload = _payload(event, uri)
    origin = payload.get("origin")
    if origin is None:
        made = make(payload)
        if made is None:
            return None
        return jsonrpc.encode({"action": _action(event.kind, uri, made), "serverSeq": event.seq})
    action: Mapping[str, Any]
    if origin["protocol"] == PROTOCOL:
        if make(payload) is None:
            return None
        action = origin["said"]
    else:
        made = make(payload)
        if made is None:
            return None
        action = _action(event.kind, uri, made)
    return jsonrpc.encode({"action": action, "serverSeq": event.seq, "origin": _origin(origin)})


def _streamed_envelope(event: Event, uri: str, make: Callable[[Payload], Made | None]) -> str | None:
    """Called for every token. Their payloads have no origin, and only texts and small numbers, which this codec keeps exact."""
    made = make(orjson.loads(event.data))
    if made is None:
        return None
    return orjson.dumps({"action": _action(event.kind, uri, made), "serverSeq": event.seq}).decode()


def breaks(event: Event) -> bool:
    """A turn that has ended does not go on in this version (V147)."""
    return event.kind == Kind.TURN_REOPENED


def root_envelope(event: Event, sight: Sight, sessions: int | None = None) -> str | None:
    action: dict[str, Any]
    if event.kind == Kind.ACTIVE_SESSIONS_CHANGED:
        count = exact_json.loads(event.data)["count"] if sight.is_whole else sessions
        if count is None:
            return None
        action = {"type": "root/activeSessionsChanged", "activeSessions": count}
    elif event.kind == Kind.AGENTS_CHANGED:
        payload = exact_json.loads(event.data)
        # Events of the previous release do not name the agents that look different.
        if sight.agents is not None and not any(name in sight.agents for name in payload.get("reshown", sight.agents)):
            return None
        cards = agent_listings.visible(payload["agents"], sight.agents)
        action = {"type": "root/agentsChanged", "agents": [agent_info(card) for card in cards]}
    elif event.kind == Kind.TERMINALS_CHANGED:
        entries = listing.visible(exact_json.loads(event.data)["terminals"], sight)
        action = {"type": "root/terminalsChanged", "terminals": [terminals.info_of(entry) for entry in entries]}
    else:
        return None
    return jsonrpc.encode({"action": action, "serverSeq": event.seq})


def rejection(event: Event) -> str | None:
    """The envelope of a refused action; None if it was sent in another version."""
    payload = exact_json.loads(event.data)
    origin = payload["origin"]
    if origin["protocol"] != PROTOCOL:
        return None
    envelope = {
        "action": origin["said"],
        "serverSeq": event.seq,
        "origin": _origin(origin),
        "rejectionReason": payload["reason"],
    }
    return jsonrpc.encode(envelope)


def echo(_event: Event) -> str | None:
    """Only subscribers get echoes (R82)."""
    return None


def _origin(origin: Payload) -> dict[str, Any]:
    return {"clientId": origin["client"], "clientSeq": origin["seq"]}


def _action(kind: str, uri: str, made: Made) -> dict[str, Any]:
    name, members = made
    resource = "terminal" if kind in OF_TERMINALS else "session"
    return {"type": f"{resource}/{name}", resource: uri, **members}


# --- the session itself ---


def _title(payload: Payload) -> Made:
    return "titleChanged", {"title": payload["title"]}


def _read(payload: Payload) -> Made:
    return "isReadChanged", {"isRead": payload["read"]}


def _archived(payload: Payload) -> Made:
    return "isArchivedChanged", {"isArchived": payload["archived"]}


def _model(payload: Payload) -> Made:
    return "modelChanged", {"model": values.model_selection(payload["model"], payload.get("config"))}


def _settings(payload: Payload) -> Made:
    members: dict[str, Any] = {"config": values.config_values(payload["options"], payload.get("approval"))}
    if payload.get("replace"):
        members["replace"] = True
    return "configChanged", members


def _server_tools(payload: Payload) -> Made:
    return "serverToolsChanged", {"tools": [values.tool_definition(tool) for tool in payload["tools"]]}


def _customizations(payload: Payload) -> Made:
    return "customizationsChanged", {"customizations": [values.customization(each) for each in payload["customizations"]]}


def _customization(payload: Payload) -> Made:
    return "customizationToggled", {"uri": payload["uri"], "enabled": payload["enabled"]}


def _activity(payload: Payload) -> Made:
    return "activityChanged", {} if payload["activity"] is None else {"activity": payload["activity"]}


def _diffs(payload: Payload) -> Made:
    return "diffsChanged", {"diffs": [values.file_edit(edit, payload[_SESSION_URI]) for edit in payload["diffs"]]}


def _cut(payload: Payload) -> Made:
    return "truncated", {} if payload["turn"] is None else {"turnId": payload["turn"]}


# --- clients and what they send ---


def _joined(payload: Payload) -> Made | None:
    """This version shows one active client: the one that joined first. Events of the previous release are of the only one."""
    if payload.get("shown", payload["client"]["id"]) != payload["client"]["id"]:
        return None
    return "activeClientChanged", {"activeClient": values.active_client(payload["client"])}


def _left(payload: Payload) -> Made | None:
    if payload.get("shown_before", payload["client"]) != payload["client"]:
        return None
    follows = payload.get("shown_after")
    return "activeClientChanged", {"activeClient": None if follows is None else values.active_client(follows)}


def _client_tools(payload: Payload) -> Made:
    return "activeClientToolsChanged", {"tools": [values.tool_definition(tool) for tool in payload["tools"]]}


def _pending(payload: Payload) -> Made:
    message = values.user_message(payload["message"])
    return "pendingMessageSet", {"kind": payload["kind"], "id": payload["id"], "userMessage": message}


def _not_pending(payload: Payload) -> Made:
    return "pendingMessageRemoved", {"kind": payload["kind"], "id": payload["id"]}


def _reordered(payload: Payload) -> Made:
    return "queuedMessagesReordered", {"order": payload["order"]}


# --- a turn ---


def _turn_started(payload: Payload) -> Made:
    members = {"turnId": payload["turn"], "userMessage": values.user_message(payload["message"])}
    if payload.get("queued") is not None:
        members["queuedMessageId"] = payload["queued"]
    return "turnStarted", members


def _turn_ended(payload: Payload) -> Made:
    return "turnComplete", {"turnId": payload["turn"]}


def _turn_failed(payload: Payload) -> Made:
    return "error", {"turnId": payload["turn"], "error": values.error_info(payload["error"])}


def _turn_cancelled(payload: Payload) -> Made | None:
    return None if payload["cause"] == "cut" else ("turnCancelled", {"turnId": payload["turn"]})


def _text_opened(payload: Payload) -> Made:
    return "responsePart", {"turnId": payload["turn"], "part": {"kind": "markdown", "id": payload["part"], "content": ""}}


def _thinking_opened(payload: Payload) -> Made:
    return "responsePart", {"turnId": payload["turn"], "part": {"kind": "reasoning", "id": payload["part"], "content": ""}}


def _text(payload: Payload) -> Made:
    return "delta", {"turnId": payload["turn"], "partId": payload["part"], "content": payload["delta"]}


def _thinking(payload: Payload) -> Made:
    return "reasoning", {"turnId": payload["turn"], "partId": payload["part"], "content": payload["delta"]}


def _usage(payload: Payload) -> Made:
    return "usage", {"turnId": payload["turn"], "usage": values.usage(payload["usage"])}


# --- tool calls ---


def _of_call(payload: Payload) -> dict[str, Any]:
    return {"turnId": payload["turn"], "toolCallId": payload["call"]}


def _call_opened(payload: Payload) -> Made:
    return "toolCallStart", {"turnId": payload["turn"], **values.call_base(payload)}


def _call_arguments(payload: Payload) -> Made:
    return "toolCallDelta", {**_of_call(payload), "content": payload["delta"]}


def _call_ready(payload: Payload) -> Made:
    # An earlier release wrote the parsed input alone.
    text = payload["arguments"] if "arguments" in payload else exact_json.dumps(payload["input"])
    members = {**_of_call(payload), "invocationMessage": values.invocation(payload), "toolInput": text}
    if payload["asks"]:
        members |= values.confirmation_of(payload, payload.get("edits", ()), payload.get(_SESSION_URI, ""))
    else:
        members["confirmed"] = payload.get("why") or "not-needed"
    return "toolCallReady", members


def _call_granted(payload: Payload) -> Made:
    members = {**_of_call(payload), "approved": True, "confirmed": payload.get("why") or "user-action"}
    if payload.get("input") is not None:
        members["editedToolInput"] = payload["input"]
    if payload.get("option") is not None:
        members["selectedOptionId"] = payload["option"]
    return "toolCallConfirmed", members


def _call_denied(payload: Payload) -> Made | None:
    if payload.get("closing"):
        return None
    members = {**_of_call(payload), "approved": False, "reason": payload.get("how") or "denied"}
    if payload["reason"]:
        members["reasonMessage"] = payload["reason"]
    if payload.get("suggestion") is not None:
        members["userSuggestion"] = values.user_message(payload["suggestion"])
    if payload.get("option") is not None:
        members["selectedOptionId"] = payload["option"]
    return "toolCallConfirmed", members


def _call_finished(payload: Payload) -> Made:
    result = values.tool_result(
        payload["content"],
        failed=payload["failed"],
        call=payload["call"],
        outcome=payload.get("outcome"),
        edits=payload.get("edits", ()),
        session=payload.get(_SESSION_URI, ""),
        terminals=values.still_there(payload.get("terminals", ())),
    )
    members = {**_of_call(payload), "result": result}
    if payload.get("reviewed"):
        members["requiresResultConfirmation"] = True
    return "toolCallComplete", members


def _call_content(payload: Payload) -> Made:
    return "toolCallContentChanged", {**_of_call(payload), "content": payload["content"]}


def _call_result(payload: Payload) -> Made:
    return "toolCallResultConfirmed", {**_of_call(payload), "approved": payload["approved"]}


# --- forms ---


def _form_opened(payload: Payload) -> Made:
    return "inputRequested", {"request": payload["form"]}


def _form_answer(payload: Payload) -> Made:
    members = {"requestId": payload["form"], "questionId": payload["question"]}
    if payload["answer"] is not None:
        members["answer"] = payload["answer"]
    return "inputAnswerChanged", members


def _form_closed(payload: Payload) -> Made:
    members = {"requestId": payload["form"], "response": payload["response"]}
    if payload["answers"]:
        members["answers"] = payload["answers"]
    return "inputCompleted", members


# --- terminals ---


def _output(payload: Payload) -> Made:
    return "data", {"data": payload["delta"]}


def _input(payload: Payload) -> Made:
    return "input", {"data": payload["data"]}


def _resized(payload: Payload) -> Made:
    return "resized", {"cols": payload["cols"], "rows": payload["rows"]}


def _claimed(payload: Payload) -> Made:
    return "claimed", {"claim": terminals.claim_of(payload["claim"])}


def _directory(payload: Payload) -> Made:
    return "cwdChanged", {"cwd": payload["cwd"]}


def _cleared(_payload: Payload) -> Made:
    return "cleared", {}


def _commands_available(_payload: Payload) -> Made:
    return "commandDetectionAvailable", {}


def _command_started(payload: Payload) -> Made:
    return "commandExecuted", {"commandId": payload["command"], "commandLine": payload["line"], "timestamp": payload["at"]}


def _command_ended(payload: Payload) -> Made:
    return "commandFinished", {"commandId": payload["command"], **terminals.outcome_of(payload)}


def _exited(payload: Payload) -> Made:
    return "exited", {"exitCode": payload["code"]} if "code" in payload else {}


OF_TERMINALS: Mapping[str, Callable[[Payload], Made | None]] = {
    Kind.TERMINAL_DATA: _output,
    Kind.TERMINAL_INPUT: _input,
    Kind.TERMINAL_RESIZED: _resized,
    Kind.TERMINAL_CLAIMED: _claimed,
    Kind.TERMINAL_TITLE_CHANGED: _title,
    Kind.TERMINAL_CWD_CHANGED: _directory,
    Kind.TERMINAL_CLEARED: _cleared,
    Kind.TERMINAL_COMMANDS_AVAILABLE: _commands_available,
    Kind.TERMINAL_COMMAND_STARTED: _command_started,
    Kind.TERMINAL_COMMAND_ENDED: _command_ended,
    Kind.TERMINAL_EXITED: _exited,
}

_ACTIONS: Mapping[str, Callable[[Payload], Made | None]] = {
    **OF_TERMINALS,
    Kind.TITLE_CHANGED: _title,
    Kind.READ_CHANGED: _read,
    Kind.ARCHIVED_CHANGED: _archived,
    Kind.MODEL_CHANGED: _model,
    Kind.SETTINGS_CHANGED: _settings,
    Kind.SERVER_TOOLS_CHANGED: _server_tools,
    Kind.CUSTOMIZATIONS_CHANGED: _customizations,
    Kind.CUSTOMIZATION_TOGGLED: _customization,
    Kind.ACTIVITY_CHANGED: _activity,
    Kind.DIFFS_CHANGED: _diffs,
    Kind.HISTORY_CUT: _cut,
    Kind.CLIENT_JOINED: _joined,
    Kind.CLIENT_LEFT: _left,
    Kind.CLIENT_TOOLS_CHANGED: _client_tools,
    Kind.MESSAGE_PENDING: _pending,
    Kind.MESSAGE_NOT_PENDING: _not_pending,
    Kind.MESSAGES_REORDERED: _reordered,
    Kind.TURN_STARTED: _turn_started,
    Kind.TURN_ENDED: _turn_ended,
    Kind.TURN_FAILED: _turn_failed,
    Kind.TURN_CANCELLED: _turn_cancelled,
    Kind.TEXT_OPENED: _text_opened,
    Kind.THINKING_OPENED: _thinking_opened,
    Kind.TEXT_DELTA: _text,
    Kind.THINKING_DELTA: _thinking,
    Kind.STEP_DONE: _usage,
    Kind.CALL_OPENED: _call_opened,
    Kind.CALL_ARGUMENTS: _call_arguments,
    Kind.CALL_READY: _call_ready,
    Kind.CALL_GRANTED: _call_granted,
    Kind.CALL_DENIED: _call_denied,
    Kind.CALL_FINISHED: _call_finished,
    Kind.CALL_CONTENT_CHANGED: _call_content,
    Kind.CALL_RESULT_CONFIRMED: _call_result,
    Kind.FORM_OPENED: _form_opened,
    Kind.FORM_ANSWER_CHANGED: _form_answer,
    Kind.FORM_CLOSED: _form_closed,
}

_WITH_CONTENTS = {Kind.CALL_FINISHED, Kind.CALL_READY, Kind.DIFFS_CHANGED}
_OF_TENANT = {Kind.ACTIVE_SESSIONS_CHANGED, Kind.AGENTS_CHANGED, Kind.DISPATCH_REFUSED, Kind.TERMINALS_CHANGED}
SILENT = frozenset(Kind) - frozenset(_ACTIONS) - _OF_TENANT
"""Kinds of events for which this version has no action. Some of them lead to notifications."""
