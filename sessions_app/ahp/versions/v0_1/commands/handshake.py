"""The handshake: ``initialize`` a connection, or ``reconnect`` where an earlier one ended (R40-R52, R280-R288)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.tenant import presence, subscribing
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import PositionedResult
from sessions_app.ahp.versions import offers
from sessions_app.ahp.versions.v0_1.wire import errors as wire_errors
from sessions_app.core.log import journal
from sessions_app.core.workspaces import places

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_PROTOCOL_ERROR = 1002
_LONGEST_CLIENT_ID = 256
_MAX_VERSIONS = 100


async def ping(_connection: Connection, _params: Any) -> None:
    return None


async def initialize(connection: Connection, params: Any) -> PositionedResult:
    directory = places.default_directory(connection.caller)
    return await begin(connection, params, {} if directory is None else {"defaultDirectory": directory})


async def begin(connection: Connection, params: Any, members: Mapping[str, Any]) -> PositionedResult:
    """``members``: of the result, beside those that all versions have."""
    if len(params["protocolVersions"]) > _MAX_VERSIONS:
        raise jsonrpc.invalid_params(f"params.protocolVersions has at most {_MAX_VERSIONS} versions")
    if (wrong := offers.malformed(params["protocolVersions"])) is not None:
        raise jsonrpc.invalid_params("params.protocolVersions has an entry that is no version").about(wrong)
    version = connection.version.choose(params["protocolVersions"])
    if version is None:
        connection.close_after_answer(_PROTOCOL_ERROR)
        raise wire_errors.unsupported_protocol_version(connection.versions.listed)
    client = _client_id(params)
    resources, _missing = await subscribing.find_all(connection, params.get("initialSubscriptions", []), "initialSubscriptions")
    await presence.enter(connection, client, resumed=False)
    with subscribing.subscribed(connection, resources):
        snapshots, positions = await subscribing.snapshots(connection, resources)
        if not positions:
            counter, _sessions = await connection.in_database(journal.counter_and_sessions, connection.caller.tenant)
    # The answer has every event up to the lowest of its snapshots' positions.
    seq = min(positions.values()) if positions else counter
    result = f'"protocolVersion":{jsonrpc.encode(version)},"serverSeq":{seq},"snapshots":{snapshots}'
    result += "".join(f',"{name}":{jsonrpc.encode(value)}' for name, value in members.items())
    connection.opened(params.get("locale"))
    subscribing.unsubscribe_deleted(connection, resources, positions)
    return PositionedResult(f"{{{result}}}", positions)


async def reconnect(connection: Connection, params: Any) -> PositionedResult:
    client = _client_id(params)
    resources, missing = await subscribing.find_all(connection, params.get("subscriptions", []), "subscriptions")
    await presence.enter(connection, client, resumed=True)
    with subscribing.subscribed(connection, resources):
        replay = await connection.in_database(
            subscribing.replay, connection.version, connection.caller, client, resources, params["lastSeenServerSeq"]
        )
        if replay is not None:
            actions = ",".join(replay.envelopes)
            result = f'{{"type":"replay","actions":[{actions}],"missing":{jsonrpc.encode(missing)}}}'
            positions = {resource.channel: replay.seq for resource in resources}
        else:
            snapshots, positions = await subscribing.snapshots(connection, resources)
            result = f'{{"type":"snapshot","snapshots":{snapshots}}}'
    connection.opened()
    subscribing.unsubscribe_deleted(connection, resources, positions)
    return PositionedResult(result, positions)


def _client_id(params: Any) -> str:
    client: str = params["clientId"]
    if len(client) > _LONGEST_CLIENT_ID or not client.isprintable():
        raise jsonrpc.invalid_params(f"params.clientId has at most {_LONGEST_CLIENT_ID} printable characters")
    return client
