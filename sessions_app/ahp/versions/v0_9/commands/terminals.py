"""Commands about terminals (V230, V232)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_9 import addresses, claims, spelling
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import TerminalTaken
from sessions_app.core.terminals import access, availability, creating, disposing
from sessions_app.core.workspaces import threads

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


def are_served() -> bool:
    """Whether this installation has terminals, and the workspaces that they need."""
    return availability.are_on() and settings.AGENTHOST_WORKSPACES_DIR is not None


async def create(connection: Connection, params: Any) -> None:
    if faults := content.unstorable(params, ("params",)):
        raise jsonrpc.invalid_params(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    if (fault := spelling.fault_of_new_terminal(params["channel"])) is not None:
        raise jsonrpc.invalid_params(f"params.channel {fault}")
    caller = connection.caller
    await threads.run(caller.tenant, _create, caller, params, connection.client)


def _create(caller: Caller, params: Any, client: str) -> None:
    uri: str = params["channel"]
    try:
        claim = claims.read(caller, params["claim"])
    except claims.BadClaim as fault:
        raise jsonrpc.invalid_params(f"params.{fault}") from None
    # A URI that names a session or chat in another way is taken too.
    if addresses.find(caller.seeing_everything(), uri) is not None:
        raise TerminalTaken
    size = params.get("cols"), params.get("rows")
    creating.create(caller, creating.Wanted(uri, claim, params.get("name"), params.get("cwd"), *size), client)


async def dispose(connection: Connection, params: Any) -> None:
    await connection.in_database(_dispose, connection.caller, params["channel"])


def _dispose(caller: Caller, uri: str) -> None:
    disposing.dispose(caller, access.find(caller, uri))
