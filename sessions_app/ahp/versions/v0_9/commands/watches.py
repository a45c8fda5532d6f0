"""Watches of files: created by a command, followed through their channels (V245)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.tenant import subscribing
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel, PositionedResult
from sessions_app.ahp.versions.v0_1.commands.files import file_uri
from sessions_app.core.base import journal_keys
from sessions_app.core.workspaces.watches import Change, Wanted

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

SCHEME = "ahp-resource-watch:/"


async def create(connection: Connection, params: Any) -> Any:
    wanted = Wanted(
        file_uri(params["uri"]),
        params.get("recursive", False),
        params["includes"]["items"] if "includes" in params else None,
        params["excludes"]["items"] if "excludes" in params else None,
    )
    id_ = await connection.switchboard.watches.begin(
        connection,
        wanted,
        lambda: connection.caller,
        connection.grants,
        partial(_report, connection),
        lambda: connection.outbox.is_crowded,
    )
    return {"channel": SCHEME + id_}


def _report(connection: Connection, id_: str, seq: int, changes: Sequence[Change]) -> None:
    if connection.close_code is not None:
        return
    uri = SCHEME + id_
    items = [{"uri": changed, "type": kind} for changed, kind in changes]
    envelope = {"channel": uri, "action": {"type": "resourceWatch/changed", "changes": {"items": items}}, "serverSeq": seq}
    connection.outbox.put_action(seq, _channel(connection, uri), jsonrpc.notification("action", envelope))


def subscribe(connection: Connection, uri: str) -> PositionedResult | None:
    """The snapshot of a watch of this connection; None if the URI is none. Others cannot see it."""
    watches = connection.switchboard.watches
    found = next((each for each in watches.of(connection) if SCHEME + each.id == uri), None)
    if found is None:
        return None
    channel = _channel(connection, uri)
    subscribing.require_room_for(connection, channel)
    is_new = connection.switchboard.subscribe(channel, connection)
    wanted, seq = found.wanted, connection.switchboard.position
    state: dict[str, Any] = {"root": wanted.uri, "recursive": wanted.recursive}
    for name, patterns in (("includes", wanted.includes), ("excludes", wanted.excludes)):
        if patterns is not None:
            state[name] = {"items": list(patterns)}
    text = jsonrpc.encode({"snapshot": {"resource": uri, "state": state, "fromSeq": seq}})
    return PositionedResult(text, {channel: seq}, frozenset() if is_new else frozenset({channel}))


def is_own(connection: Connection, uri: str) -> bool:
    return uri.startswith(SCHEME) and any(SCHEME + each.id == uri for each in connection.switchboard.watches.of(connection))


def _channel(connection: Connection, uri: str) -> Channel:
    return Channel(journal_keys.of_watches(connection.caller.tenant), uri, "watch", watch=uri.removeprefix(SCHEME))
