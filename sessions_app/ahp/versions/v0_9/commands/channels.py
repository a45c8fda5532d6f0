"""Subscriptions to channels (V47-V50, V182)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp.tenant import subscribing
from sessions_app.ahp.version import PositionedResult
from sessions_app.ahp.versions.v0_9 import errors, spelling
from sessions_app.ahp.versions.v0_9.commands import watches
from sessions_app.core.base.errors import SessionNotFound, TerminalNotFound
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import agents

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_SESSION = "session"
_BELOW_SESSIONS = "/annotations"
"""Of channels that this host does not have, whose URIs begin with a session's (V321)."""


async def subscribe(connection: Connection, params: Any) -> PositionedResult:
    """``delivery`` and ``view`` are advice, which this host does not need."""
    uri: str = params["channel"]
    caller = connection.caller
    if (watched := watches.subscribe(connection, uri)) is not None:
        return watched
    try:
        resource = await subscribing.find(connection, uri)
        subscribing.require_room_for(connection, resource.channel)
        with subscribing.subscribed(connection, [resource]) as followed:
            snapshot = await connection.in_database(connection.version.snapshots.read, caller, resource)
    except (SessionNotFound, TerminalNotFound):
        schemes = {"ahp-session", *(spec.name for spec in agents.visible(caller))} - spelling.NOT_FOR_SESSIONS
        is_session = uri.partition(":")[0] in schemes and not uri.endswith(_BELOW_SESSIONS)
        raise errors.session_not_found() if is_session else errors.not_found() from None
    return PositionedResult(f'{{"snapshot":{snapshot.text}}}', {resource.channel: snapshot.seq}, followed)


async def unsubscribe(connection: Connection, params: Any) -> None:
    uri: str = params["channel"]
    sessions = {each.key for each in connection.subscriptions if each.uri == uri and each.kind == _SESSION}
    connection.unsubscribe(uri)
    for other in connection.switchboard.connections:
        if other.client == connection.client:
            sessions -= {each.key for each in other.subscriptions if each.kind == _SESSION}
    for session in sessions:
        await connection.in_database(connections.withdraw, connection.caller, session, connection.client)
