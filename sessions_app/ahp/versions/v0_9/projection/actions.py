"""Events as actions of AHP 0.9 and 1.0, in envelopes: at most one for each event."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import alike
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import terminals, values
from sessions_app.ahp.versions.v0_9.projection.agents import agent_info
from sessions_app.ahp.versions.v0_9.projection.chats import chat_status
from sessions_app.ahp.versions.v0_9.projection.context import Context, Made, Make, Payload, as_in_0_1
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.core.base.caller import Sight
from sessions_app.core.base.events import TEXT_KINDS, Kind
from sessions_app.core.log.journal.types import Event

PROTOCOL = "ahp/1"
"""Of actions that were dispatched in either version."""


@dataclass(frozen=True, slots=True)
class Projection:
    face: Face

    def envelopes(self, event: Event, channels: Collection[Channel]) -> Iterator[tuple[Channel, str]]:
        """For the spellings of the session, or of its chat."""
        kind, make = _ACTIONS.get(event.kind, ("", None))
        if make is None:
            return
        for channel in channels:
            if channel.kind == kind and (envelope := self._envelope(event, channel, make)) is not None:
                yield channel, envelope

    def action_of(self, event: Event, channel: Channel) -> dict[str, Any] | None:
        """None if the event is no action on this channel."""
        kind, make = _ACTIONS.get(event.kind, ("", None))
        if make is None or channel.kind != kind:
            return None
        made = make(exact_json.loads(event.data), Context(channel.session, self.face))
        return None if made is None else _action(kind, made)

    def _envelope(self, event: Event, channel: Channel, make: Make) -> str | None:
        context = Context(channel.session, self.face)
        if event.kind in TEXT_KINDS:
            try:
                return _streamed_envelope(event, channel, make, context)
            except (orjson.JSONDecodeError, orjson.JSONEncodeError):
                pass  # It has a lone surrogate, which only the slower codec keeps.
        payload = exact_json.loads(event.data)
        made = make(payload, context)
        if made is None:
            return None
        envelope: dict[str, Any] = {"channel": channel.uri, "action": _action(channel.kind, made), "serverSeq": event.seq}
        origin = payload.get("origin")
        if origin is not None and origin["protocol"] != PROTOCOL:
            envelope["origin"] = alike.origin_of(origin)
        elif origin is not None and origin["said"]["type"].startswith(channel.kind):
            # Archiving is an action on the session and one on its chat: only one of them was dispatched.
            envelope |= {"action": _echoed(event, origin, envelope["action"]), "origin": alike.origin_of(origin)}
        return jsonrpc.encode(envelope)

    def breaks(self, _event: Event) -> bool:
        """Every change of a state has its action here."""
        return False

    def root_envelope(self, event: Event, sight: Sight, sessions: int | None = None) -> str | None:
        action = alike.of_root(event, sight, sessions, agent_info, lambda entry: terminals.info_of(entry, self.face))
        return None if action is None else jsonrpc.encode({"channel": ROOT, "action": action, "serverSeq": event.seq})

    def rejection(self, event: Event) -> str | None:
        """The envelope of a refused action; None if it was sent in another version."""
        payload = exact_json.loads(event.data)
        origin = payload["origin"]
        if origin["protocol"] != PROTOCOL:
            return None
        envelope = {
            "channel": origin["channel"],
            "action": origin["said"],
            "serverSeq": event.seq,
            "origin": alike.origin_of(origin),
            "rejectionReason": payload["reason"],
        }
        return jsonrpc.encode(envelope)

    def echo(self, event: Event) -> str | None:
        """An accepted action on the channel to which it was sent (V207)."""
        payload = exact_json.loads(event.data)
        origin = payload["origin"]
        kind, make = _ACTIONS.get(event.kind, ("", None))
        if make is None or origin["protocol"] != PROTOCOL or not origin["said"]["type"].startswith(kind):
            return None
        made = make(payload, Context(origin["channel"], self.face))
        if made is None:
            return None
        channel = origin.get("echo_channel", origin["channel"])
        said = _echoed(event, origin, _action(kind, made))
        return jsonrpc.encode({"channel": channel, "action": said, "serverSeq": event.seq, "origin": alike.origin_of(origin)})


def _echoed(event: Event, origin: Payload, made: dict[str, Any]) -> Any:
    """The action as it was received; one that names a session, in the spelling of the client that gets it."""
    return made if event.kind == Kind.TERMINAL_CLAIMED else origin["said"]


def _streamed_envelope(event: Event, channel: Channel, make: Make, context: Context) -> str | None:
    """Called for every token. Their payloads have no origin, and only texts and small numbers, which this codec keeps exact."""
    made = make(orjson.loads(event.data), context)
    if made is None:
        return None
    return orjson.dumps({"channel": channel.uri, "action": _action(channel.kind, made), "serverSeq": event.seq}).decode()


def _action(kind: str, made: Made) -> dict[str, Any]:
    name, members = made
    return {"type": f"{kind}/{name}", **members}


# --- the session ---


def _read_cleared(_payload: Payload, _: Context) -> Made:
    return "isReadChanged", {"isRead": False}


def _customizations(payload: Payload, _: Context) -> Made:
    return "customizationsChanged", {"customizations": [values.customization(each) for each in payload["customizations"]]}


def _customization(payload: Payload, _: Context) -> Made:
    enablement = payload.get("enablement")
    if enablement is None:
        enablement = values.switched(enabled=payload["enabled"])
    return "customizationToggled", {"id": payload.get("id", payload["uri"]), "enablement": enablement}


def _joined(payload: Payload, _: Context) -> Made:
    return "activeClientSet", {"activeClient": values.active_client(payload["client"])}


def _client_tools(payload: Payload, _: Context) -> Made | None:
    # Events of the previous release have only the tools.
    return None if "entry" not in payload else ("activeClientSet", {"activeClient": values.active_client(payload["entry"])})


def _left(payload: Payload, _: Context) -> Made | None:
    return None if payload["client"] is None else ("activeClientRemoved", {"clientId": payload["client"]})


def _attention_opened(payload: Payload, context: Context) -> Made:
    return "inputNeededSet", {"request": values.attention(payload, context.session, context.chat)}


def _attention_closed(payload: Payload, _: Context) -> Made:
    return "inputNeededRemoved", {"id": values.attention_id(payload["kind"], payload["turn"], payload["of"])}


def _conversation(payload: Payload, context: Context) -> Made | None:
    """What has changed of the chat's summary."""
    changed, changes = payload["changed"], {}
    if "title" in changed:
        changes["title"] = payload["title"]
    if "state" in changed or ("flags" in changed and context.face.family == "1"):
        changes["status"] = chat_status(payload["state"], context.face, read=payload["read"], archived=payload["archived"])
    if "activity" in changed:
        changes["activity"] = payload["activity"] or ""
    if "modified_at" in changed:
        changes["modifiedAt"] = payload["modified_at"]
    return ("chatUpdated", {"chat": context.chat, "changes": changes}) if changes else None


# --- the chat ---


def _chat_read(payload: Payload, context: Context) -> Made | None:
    return ("isReadChanged", {"isRead": payload["read"]}) if context.face.family == "1" else None


def _chat_archived(payload: Payload, context: Context) -> Made | None:
    return ("isArchivedChanged", {"isArchived": payload["archived"]}) if context.face.family == "1" else None


def _draft(payload: Payload, _: Context) -> Made:
    return "draftChanged", {} if payload["draft"] is None else {"draft": values.message(payload["draft"])}


def _pending(payload: Payload, _: Context) -> Made:
    return "pendingMessageSet", {"kind": payload["kind"], "id": payload["id"], "message": values.message(payload["message"])}


# --- a turn ---

_UNKNOWN_TIME = "1970-01-01T00:00:00.000Z"
"""Of an event of a release that did not store it."""


def _turn_started(payload: Payload, _: Context) -> Made:
    members = {"turnId": payload["turn"], "startedAt": payload.get("started_at", _UNKNOWN_TIME)}
    members["message"] = values.message(payload["message"], payload.get("model"))
    if payload.get("queued") is not None:
        members["queuedMessageId"] = payload["queued"]
    return "turnStarted", members


def _end(payload: Payload) -> dict[str, Any]:
    return {"turnId": payload["turn"], "duration": payload.get("duration_ms") or 0}


def _turn_ended(payload: Payload, _: Context) -> Made:
    return "turnComplete", _end(payload)


def _turn_failed(payload: Payload, _: Context) -> Made:
    return "error", {**_end(payload), "part": values.error_part(payload["error"], resumable=bool(payload.get("resumable")))}


def _turn_reopened(payload: Payload, _: Context) -> Made:
    return "turnResume", {"turnId": payload["turn"]}


def _turn_cancelled(payload: Payload, _: Context) -> Made | None:
    return None if payload["cause"] == "cut" else ("turnCancelled", _end(payload))


# --- tool calls ---


def _call_opened(payload: Payload, _: Context) -> Made:
    return "toolCallStart", {"turnId": payload["turn"], **values.call_base(payload)}


def _call_denied(payload: Payload, _: Context) -> Made | None:
    return alike.call_denied(payload, values.message)


# --- forms ---


def _with_contents(make: alike.Make) -> Make:
    return lambda payload, context: make({**payload, alike.SESSION_URI: context.session})


def _alike(makes: Mapping[str, alike.Make]) -> dict[str, Make]:
    return {kind: _with_contents(make) if kind in alike.WITH_CONTENTS else as_in_0_1(make) for kind, make in makes.items()}


_OF_SESSIONS: Mapping[str, Make] = {
    **_alike(alike.OF_SESSIONS),
    Kind.READ_CLEARED: _read_cleared,
    Kind.CUSTOMIZATIONS_CHANGED: _customizations,
    Kind.CUSTOMIZATION_TOGGLED: _customization,
    Kind.CLIENT_JOINED: _joined,
    Kind.CLIENT_TOOLS_CHANGED: _client_tools,
    Kind.CLIENT_LEFT: _left,
    Kind.ATTENTION_OPENED: _attention_opened,
    Kind.ATTENTION_CLOSED: _attention_closed,
    Kind.CONVERSATION_CHANGED: _conversation,
}
_OF_CHATS: Mapping[str, Make] = {
    **_alike(alike.OF_CHATS),
    Kind.CHAT_READ_CHANGED: _chat_read,
    Kind.CHAT_ARCHIVED_CHANGED: _chat_archived,
    Kind.DRAFT_CHANGED: _draft,
    Kind.MESSAGE_PENDING: _pending,
    Kind.TURN_STARTED: _turn_started,
    Kind.TURN_REOPENED: _turn_reopened,
    Kind.TURN_ENDED: _turn_ended,
    Kind.TURN_FAILED: _turn_failed,
    Kind.TURN_CANCELLED: _turn_cancelled,
    Kind.CALL_OPENED: _call_opened,
    Kind.CALL_DENIED: _call_denied,
}
_ACTIONS: Mapping[str, tuple[str, Make]] = {
    **{kind: ("session", make) for kind, make in _OF_SESSIONS.items()},
    **{kind: ("chat", make) for kind, make in _OF_CHATS.items()},
    **{kind: ("terminal", make) for kind, make in terminals.OF_TERMINALS.items()},
}
_OF_TENANT = {Kind.ACTIVE_SESSIONS_CHANGED, Kind.AGENTS_CHANGED, Kind.DISPATCH_REFUSED, Kind.TERMINALS_CHANGED}
SILENT = frozenset(Kind) - frozenset(_ACTIONS) - _OF_TENANT
"""Kinds of events for which these versions have no action. Some of them lead to notifications."""
