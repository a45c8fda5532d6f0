"""Commands about terminals (R300, R301, R309)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp import uris
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection.terminals import claim_from
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.terminals import access, creating, disposing
from sessions_app.core.workspaces import threads

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


async def create(connection: Connection, params: Any) -> None:
    if faults := content.unstorable(params, ("params",)):
        raise jsonrpc.invalid_params(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    uri: str = params["terminal"]
    if uris.scheme(uri) is None or uri == ROOT:
        raise jsonrpc.invalid_params("params.terminal must be a URI with a scheme and a path, and not the root's")
    wanted = creating.Wanted(
        uri=uri,
        claim=claim_from(params["claim"]),
        title=params.get("name"),
        cwd=params.get("cwd"),
        cols=params.get("cols"),
        rows=params.get("rows"),
    )
    caller = connection.caller
    await threads.run(caller.tenant, creating.create, caller, wanted, connection.client)


async def dispose(connection: Connection, params: Any) -> None:
    await connection.in_database(_dispose, connection.caller, params["terminal"])


def _dispose(caller: Caller, uri: str) -> None:
    disposing.dispose(caller, access.find(caller, uri))
