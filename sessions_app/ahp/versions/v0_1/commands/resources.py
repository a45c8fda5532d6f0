"""Subscribing to resources (R61-R64)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import AsOf
from sessions_app.ahp.versions.v0_1 import errors, snapshots
from sessions_app.ahp.versions.v0_1.snapshots import Target
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.tenancy import agents

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


async def subscribe(connection: Connection, params: Any) -> AsOf:
    uri: str = params["resource"]
    caller = connection.caller
    try:
        target = await connection.in_database(snapshots.find, caller, uri)
        most = settings.AGENTHOST_AHP_SUBSCRIPTIONS
        if target.key not in connection.subscriptions and len(connection.subscriptions) >= most:
            raise jsonrpc.invalid_params(f"params.resource: this connection has {most:,} subscriptions, which is the limit")
        is_new = connection.switchboard.subscribe(target, connection)
        try:
            result, seq = await connection.in_database(_snapshot, caller, target)
        except BaseException:
            if is_new:
                connection.switchboard.unsubscribe(target.key, connection)
            raise
    except SessionNotFound:
        # Agents' sessions are looked for under the agent's scheme; everything else is some other thing (R62).
        is_session = uri.partition(":")[0] in {spec.name for spec in agents.visible(caller)}
        raise errors.session_not_found() if is_session else errors.not_found() from None
    return AsOf(result, {target.key: seq}, frozenset() if is_new else frozenset({target.key}))


def _snapshot(caller: Caller, target: Target) -> tuple[str, int]:
    shot = snapshots.read(caller, target)
    return jsonrpc.encode({"snapshot": shot}), shot["fromSeq"]
