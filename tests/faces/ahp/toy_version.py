"""A version of AHP that exists for tests: AHP 0.1 with other names, made as docs/howto/ahp-version.md describes.

``createSession`` is ``session/create``; a session has two channels, ``toy-session:…`` with its state and ``toy-title:…`` with its
summary; actions have a ``channel`` instead of a ``session``; an unknown session is error -32901; only subscribers of the root get
notifications.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from agents_app import exact_json
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.tenant import subscribing
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import Request, RPCError
from sessions_app.ahp.version import Channel, ClientNotification, Command, PositionedResult, Resource, Snapshot, Version
from sessions_app.ahp.versions.v0_1 import snapshots as v0_1_snapshots
from sessions_app.ahp.versions.v0_1.commands import sessions
from sessions_app.ahp.versions.v0_1.projection import actions as v0_1_actions
from sessions_app.ahp.versions.v0_1.projection.sessions import summary_of
from sessions_app.ahp.versions.v0_1.reducers import reduce
from sessions_app.ahp.versions.v0_1.version import VERSION as V0_1
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import DomainError, SessionNotFound
from sessions_app.core.base.events import Kind
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.log.journal.types import Event
from sessions_app.core.records import addresses, dispatches, session_changes
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.sessions.entries import SessionEntry

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

NAME = "0.2.0"
PROTOCOL = "ahp/toy"
SESSION_NOT_FOUND = -32901
_KINDS = {"toy-session": "session", "toy-title": "title"}


def uri_of(core_uri: str, scheme: str = "toy-session") -> str:
    return f"{scheme}:{core_uri}"


def core_uri_of(uri: str) -> str:
    return uri.partition(":")[2] if _kind_of(uri) else ""


def _kind_of(uri: str) -> str | None:
    return _KINDS.get(uri.partition(":")[0])


# --- channels and states ---


def _find_all(caller: Caller, uris: Sequence[str]) -> tuple[list[Resource], list[str]]:
    found, _missing = v0_1_snapshots.find_all(caller, [ROOT, *filter(None, map(core_uri_of, uris))])
    of_core = {resource.channel.uri: resource for resource in found}
    resources: dict[str, Resource] = {}
    for uri in uris:
        kind = _kind_of(uri)
        if uri == ROOT:
            resources[uri] = of_core[ROOT]
        elif kind is not None and (resource := of_core.get(core_uri_of(uri))) is not None:
            resources[uri] = replace(resource, channel=replace(resource.channel, uri=uri, kind=kind))
    return list(resources.values()), [uri for uri in dict.fromkeys(uris) if uri not in resources]


def _read(caller: Caller, resource: Resource) -> Snapshot:
    seq, state = v0_1_snapshots.read_state(caller, resource)
    if resource.channel.kind == "title":
        state = {"summary": state["summary"]}
    return Snapshot(seq, jsonrpc.encode({"resource": resource.channel.uri, "state": state, "fromSeq": seq}))


# --- events ---


def envelope_of(event: Event, uri: str) -> str | None:
    origin = exact_json.loads(event.data).get("origin")
    if origin is not None and origin["protocol"] == PROTOCOL:
        action = {**origin["said"], "channel": uri}
    else:
        found = v0_1_actions.action_of(event, uri)
        if found is None:
            return None
        action = {"channel" if name == "session" else name: value for name, value in found.items()}
    return _envelope(event, action, origin)


def _envelope(event: Event, action: Mapping[str, Any], origin: Mapping[str, Any] | None, **members: Any) -> str:
    sender = {} if origin is None else {"origin": {"clientId": origin["client"], "clientSeq": origin["seq"]}}
    return jsonrpc.encode({"action": action, "serverSeq": event.seq, **sender, **members})


def _envelopes(event: Event, channels: Collection[Channel]) -> Iterator[tuple[Channel, str]]:
    for channel in channels:
        if channel.kind == "title" and event.kind != Kind.TITLE_CHANGED:
            continue
        if (envelope := envelope_of(event, channel.uri)) is not None:
            yield channel, envelope


def _rejection(event: Event) -> str | None:
    payload = exact_json.loads(event.data)
    origin = payload["origin"]
    if origin["protocol"] != PROTOCOL:
        return None
    return _envelope(event, origin["said"], origin, rejectionReason=payload["reason"])


# --- notifications ---


def _concerns(connection: Connection) -> bool:
    return any(channel.kind == "root" for channel in connection.subscriptions)


def _added(summary: SessionEntry) -> str:
    return jsonrpc.notification("root/sessionAdded", {"summary": {**summary_of(summary), "resource": uri_of(summary.uri)}})


def _changed(_before: SessionEntry | None, after: SessionEntry, fields: Collection[str]) -> str | None:
    if "title" not in fields:
        return None
    return jsonrpc.notification("root/sessionSummaryChanged", {"session": uri_of(after.uri), "changes": {"title": after.title}})


def _removed(event: Event) -> str:
    return jsonrpc.notification("root/sessionRemoved", {"session": uri_of(exact_json.loads(event.data)["uri"])})


# --- commands and actions ---


async def _create(connection: Connection, params: Any) -> None:
    await sessions.create(connection, {**params, "session": core_uri_of(params["session"])})


async def _dispose(connection: Connection, params: Any) -> None:
    await sessions.dispose(connection, {**params, "session": core_uri_of(params["session"])})


async def _subscribe(connection: Connection, params: Any) -> PositionedResult:
    resource = await subscribing.find(connection, params["resource"])
    with subscribing.subscribed(connection, [resource]) as followed:
        snapshot = await connection.in_database(connection.version.snapshots.read, connection.caller, resource)
    return PositionedResult(f'{{"snapshot":{snapshot.text}}}', {resource.channel: snapshot.seq}, followed)


async def _dispatch(connection: Connection, params: Any) -> None:
    action = params["action"]
    dispatched = Dispatched(connection.client, connection.id, connection.life, params["clientSeq"], PROTOCOL, action)
    await connection.in_database(_apply, connection.caller, action, dispatched)


def _apply(caller: Caller, action: Mapping[str, Any], dispatched: Dispatched) -> None:
    session = addresses.find(caller, core_uri_of(action["channel"]))
    try:
        match action["type"]:
            case "session/titleChanged":
                session_changes.rename(caller, session, action["title"], dispatched=dispatched)
            case "session/turnStarted":
                message = UserMessage.of(action["userMessage"])
                turn = {"turn_id": action["turnId"], "content": message.text, "as_written": message}
                turns.start(caller, session, **turn, only_if_idle=True, dispatched=dispatched)
            case _:
                dispatches.refuse(caller, dispatched, "there is no action of this type")
    except DomainError as error:
        dispatches.refuse(caller, dispatched, str(error))


def _recognises(request: Request) -> bool:
    """A ``reconnect`` to a channel of this version."""
    uris = request.params.get("subscriptions", []) if isinstance(request.params, dict) else []
    return isinstance(uris, list) and any(isinstance(uri, str) and _kind_of(uri) for uri in uris)


_KEPT = ("initialize", "reconnect", "ping", "listSessions")
_CREATE, _DISPOSE, _SUBSCRIBE = (V0_1.commands[method] for method in ("createSession", "disposeSession", "subscribe"))
_NOTIFICATIONS = V0_1.client_notifications

VERSION = Version(
    name="toy",
    listed=(NAME,),
    choose=lambda offered: NAME if NAME in offered else None,
    recognises=_recognises,
    commands={
        **{method: V0_1.commands[method] for method in _KEPT},
        "session/create": Command(_CREATE.params, _create, needs_write=True),
        "disposeSession": Command(_DISPOSE.params, _dispose, needs_write=True),
        "subscribe": Command(_SUBSCRIBE.params, _subscribe, with_states=True),
    },
    client_notifications={
        "unsubscribe": _NOTIFICATIONS["unsubscribe"],
        "dispatchAction": ClientNotification(_NOTIFICATIONS["dispatchAction"].params, _dispatch, limited=True),
    },
    errors={**V0_1.errors, SessionNotFound: lambda _error: RPCError(SESSION_NOT_FOUND, "Unknown session.")},
    snapshots=SimpleNamespace(find_all=_find_all, read=_read),
    projection=SimpleNamespace(
        envelopes=_envelopes,
        root_envelope=v0_1_actions.root_envelope,
        rejection=_rejection,
        echo=lambda _event: None,
        breaks=v0_1_actions.breaks,
    ),
    summary_notifications=SimpleNamespace(concerns=_concerns, added=_added, changed=_changed, removed=_removed),
)


def _channel_of(envelope: Mapping[str, Any]) -> str | None:
    uri: str = envelope["action"].get("channel", ROOT)
    return uri


CLIENT_SIDE = ClientVersion(offers=(NAME,), root=ROOT, channel_of=_channel_of, reduce=reduce)
