"""What clients dispatch: checked, handed to the core, echoed by it or refused (R80-R91).

The core writes the echo into the journal in the transaction that the action causes, so it comes back to every
subscriber through the tenant's order, in whatever process they are. So does a refusal, to its connection alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp.versions.v0_1.dispatch.facts import Dispatch
from sessions_app.ahp.versions.v0_1.dispatch.judging import judge

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


async def take(connection: Connection, seq: Any, action: dict[str, Any]) -> None:
    """Returns when the action has taken effect, was refused or ignored."""
    dispatch = Dispatch(connection.caller, connection.client, connection.id, connection.life, seq, action)
    await connection.in_database(judge, dispatch)
