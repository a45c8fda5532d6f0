"""The handshake: ``initialize`` a connection, or ``reconnect`` where an earlier one ended (V11, V12, V20-V24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents_app import installation
from sessions_app.ahp.version import PositionedResult
from sessions_app.ahp.versions.v0_1.commands import handshake as v0_1
from sessions_app.ahp.versions.v0_9 import errors, negotiation
from sessions_app.core.records import handshakes
from sessions_app.core.sessions import connections
from sessions_app.core.workspaces import places

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


_NEVER = -1
"""A position that is answered with snapshots."""


async def initialize(connection: Connection, params: Any) -> PositionedResult:
    # The client comes back with a number behind the mark.
    await connection.in_database(handshakes.mark, connection.caller)
    members: dict[str, Any] = {"serverInfo": {"name": "Agenthost", "version": installation.version()}}
    if (directory := places.default_directory(connection.caller)) is not None:
        members["defaultDirectory"] = directory
    if negotiation.is_editor(params) and negotiation.takes_any_uri(params):
        members["_meta"] = {negotiation.SESSION_URIS: True}
    return await v0_1.begin(connection, params, members)


async def reconnect(connection: Connection, params: Any) -> PositionedResult:
    remembered = connection.remembered
    if remembered is None:
        # Nobody knows which version the client speaks: it begins anew, on the same connection.
        raise errors.unknown_client().about(params["clientId"])
    mark = await connection.in_database(handshakes.mark, connection.caller)
    # These versions cannot show the events before the mark, and in another dialect the client's states have other URIs.
    in_other_dialect = remembered is not connection.version
    if params["lastSeenServerSeq"] < mark or in_other_dialect:
        params = {**params, "lastSeenServerSeq": _NEVER}
    result = await v0_1.reconnect(connection, params)
    if in_other_dialect:
        await connection.in_database(handshakes.remember, connection.caller, connection.client, connection.version.name)
    followed = {channel.key for channel in connection.subscriptions if channel.kind == "session"}
    await connection.in_database(connections.withdraw_from_others, connection.caller, connection.client, followed)
    return result
