"""Subscriptions to channels (R61-R64)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp.tenant import subscribing
from sessions_app.ahp.version import PositionedResult
from sessions_app.ahp.versions.v0_1 import errors
from sessions_app.core.base.errors import SessionNotFound, TerminalNotFound
from sessions_app.core.tenancy import agents

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


async def subscribe(connection: Connection, params: Any) -> PositionedResult:
    uri: str = params["resource"]
    caller = connection.caller
    try:
        resource = await subscribing.find(connection, uri)
        subscribing.require_room_for(connection, resource.channel)
        with subscribing.subscribed(connection, [resource]) as followed:
            snapshot = await connection.in_database(connection.version.snapshots.read, caller, resource)
    except (SessionNotFound, TerminalNotFound):
        # A URI with an agent's scheme is a session's, any other is not (R62).
        is_session = uri.partition(":")[0] in {spec.name for spec in agents.visible(caller)}
        raise errors.session_not_found() if is_session else errors.not_found() from None
    return PositionedResult(f'{{"snapshot":{snapshot.text}}}', {resource.channel: snapshot.seq}, followed)


async def unsubscribe(connection: Connection, params: Any) -> None:
    connection.unsubscribe(params["resource"])
