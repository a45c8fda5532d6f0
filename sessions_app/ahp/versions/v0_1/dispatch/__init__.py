"""Actions that clients dispatch: validated, passed to the core, echoed or rejected (R80-R91).

The core writes the echo into the journal in the transaction of the action, so that every subscriber in every process gets it
in the tenant's order. A rejection takes the same path, to its connection alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp.versions.v0_1.dispatch.handling import handle
from sessions_app.ahp.versions.v0_1.dispatch.types import Dispatch

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


HOT = frozenset({"session/turnStarted"})
"""Actions that are handled on the loop, because they need few round trips."""


async def take(connection: Connection, params: Any) -> None:
    """The client notification ``dispatchAction``. Returns when the action has taken effect, was rejected or ignored."""
    sender = (connection.caller, connection.client, connection.id, connection.life)
    dispatch = Dispatch(*sender, params["clientSeq"], params["action"])
    run = connection.on_loop if params["action"].get("type") in HOT else connection.in_database
    await run(handle, dispatch)
