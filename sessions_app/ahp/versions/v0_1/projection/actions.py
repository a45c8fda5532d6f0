"""Events as actions of AHP 0.1, in envelopes: at most one for each event."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import alike, terminals, values
from sessions_app.ahp.versions.v0_1.projection.agent_settings import agent_info
from sessions_app.ahp.versions.v0_1.projection.alike import Made, Make, Payload
from sessions_app.core.base.caller import Sight
from sessions_app.core.base.events import TEXT_KINDS, Kind
from sessions_app.core.log.journal.types import Event

PROTOCOL = "ahp/0.1"


def action_of(event: Event, uri: str) -> dict[str, Any] | None:
    """None if this version has no action for the event."""
    make = _ACTIONS.get(event.kind)
    made = None if make is None else make(_payload(event, uri))
    return None if made is None else _action(event.kind, uri, made)


def _payload(event: Event, uri: str) -> dict[str, Any]:
    payload: dict[str, Any] = exact_json.loads(event.data)
    if event.kind in alike.WITH_CONTENTS:
        payload[alike.SESSION_URI] = uri
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
    return jsonrpc.encode({"action": action, "serverSeq": event.seq, "origin": alike.origin_of(origin)})


def _streamed_envelope(event: Event, uri: str, make: Make) -> str | None:
    """Called for every token. Their payloads have no origin, and only texts and small numbers, which this codec keeps exact."""
    made = make(orjson.loads(event.data))
    if made is None:
        return None
    return orjson.dumps({"action": _action(event.kind, uri, made), "serverSeq": event.seq}).decode()


def breaks(event: Event) -> bool:
    """A turn that has ended does not go on in this version (V147)."""
    return event.kind == Kind.TURN_REOPENED


def root_envelope(event: Event, sight: Sight, sessions: int | None = None) -> str | None:
    action = alike.of_root(event, sight, sessions, agent_info, terminals.info_of)
    return None if action is None else jsonrpc.encode({"action": action, "serverSeq": event.seq})


def rejection(event: Event) -> str | None:
    """The envelope of a refused action; None if it was sent in another version."""
    payload = exact_json.loads(event.data)
    origin = payload["origin"]
    if origin["protocol"] != PROTOCOL:
        return None
    envelope = {
        "action": origin["said"],
        "serverSeq": event.seq,
        "origin": alike.origin_of(origin),
        "rejectionReason": payload["reason"],
    }
    return jsonrpc.encode(envelope)


def echo(_event: Event) -> str | None:
    """Only subscribers get echoes (R82)."""
    return None


def _action(kind: str, uri: str, made: Made) -> dict[str, Any]:
    name, members = made
    resource = "terminal" if kind in OF_TERMINALS else "session"
    return {"type": f"{resource}/{name}", resource: uri, **members}


# --- the session itself ---


def _model(payload: Payload) -> Made:
    return "modelChanged", {"model": values.model_selection(payload["model"], payload.get("config"))}


def _customizations(payload: Payload) -> Made:
    return "customizationsChanged", {"customizations": [values.customization(each) for each in payload["customizations"]]}


def _customization(payload: Payload) -> Made:
    return "customizationToggled", {"uri": payload["uri"], "enabled": payload["enabled"]}


def _diffs(payload: Payload) -> Made:
    return "diffsChanged", {"diffs": [values.file_edit(edit, payload[alike.SESSION_URI]) for edit in payload["diffs"]]}


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


# --- tool calls ---


def _call_opened(payload: Payload) -> Made:
    return "toolCallStart", {"turnId": payload["turn"], **values.call_base(payload)}


def _call_denied(payload: Payload) -> Made | None:
    return alike.call_denied(payload, values.user_message)


def _call_finished(payload: Payload) -> Made:
    return alike.call_finished({**payload, "terminals": values.still_there(payload.get("terminals", ()))})


# --- forms ---


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


OF_TERMINALS: Mapping[str, Make] = {
    Kind.TERMINAL_DATA: _output,
    Kind.TERMINAL_INPUT: _input,
    Kind.TERMINAL_RESIZED: _resized,
    Kind.TERMINAL_CLAIMED: _claimed,
    Kind.TERMINAL_TITLE_CHANGED: alike.title,
    Kind.TERMINAL_CWD_CHANGED: _directory,
    Kind.TERMINAL_CLEARED: _cleared,
    Kind.TERMINAL_COMMANDS_AVAILABLE: _commands_available,
    Kind.TERMINAL_COMMAND_STARTED: _command_started,
    Kind.TERMINAL_COMMAND_ENDED: _command_ended,
    Kind.TERMINAL_EXITED: _exited,
}

_ACTIONS: Mapping[str, Make] = {
    **OF_TERMINALS,
    **alike.OF_SESSIONS,
    **alike.OF_CHATS,
    Kind.MODEL_CHANGED: _model,
    Kind.CUSTOMIZATIONS_CHANGED: _customizations,
    Kind.CUSTOMIZATION_TOGGLED: _customization,
    Kind.DIFFS_CHANGED: _diffs,
    Kind.CLIENT_JOINED: _joined,
    Kind.CLIENT_LEFT: _left,
    Kind.CLIENT_TOOLS_CHANGED: _client_tools,
    Kind.MESSAGE_PENDING: _pending,
    Kind.TURN_STARTED: _turn_started,
    Kind.TURN_ENDED: _turn_ended,
    Kind.TURN_FAILED: _turn_failed,
    Kind.TURN_CANCELLED: _turn_cancelled,
    Kind.CALL_OPENED: _call_opened,
    Kind.CALL_DENIED: _call_denied,
    Kind.CALL_FINISHED: _call_finished,
}

_OF_TENANT = {Kind.ACTIVE_SESSIONS_CHANGED, Kind.AGENTS_CHANGED, Kind.DISPATCH_REFUSED, Kind.TERMINALS_CHANGED}
SILENT = frozenset(Kind) - frozenset(_ACTIONS) - _OF_TENANT
"""Kinds of events for which this version has no action. Some of them lead to notifications."""
