"""Actions that clients of AHP 0.9 and 1.0 dispatch: validated, passed to the core, echoed or rejected (V90-V98).

The core writes the echo into the journal in the transaction of the action, so that every subscriber in every process gets it
in the tenant's order. A rejection takes the same path, to its connection alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.versions.v0_1.dispatch import uris_of_files
from sessions_app.ahp.versions.v0_1.dispatch.types import Dispatch
from sessions_app.ahp.versions.v0_9 import attached_chats
from sessions_app.ahp.versions.v0_9.commands import watches
from sessions_app.ahp.versions.v0_9.dispatch.handling import handle
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.core.base.errors import FilesAway
from sessions_app.core.workspaces import files, threads

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

HOT = frozenset({"chat/turnStarted"})
"""Actions that are handled on the loop, because they need few round trips."""
_WITH_MESSAGE = frozenset({"chat/turnStarted", "chat/pendingMessageSet"})


async def take(connection: Connection, params: Any, *, face: Face) -> None:
    """The client notification ``dispatchAction``. Returns when the action has taken effect, was rejected or ignored."""
    caller, action = connection.caller, params["action"]
    read: dict[str, bytes] = {}
    if uris := [uri for uri in _attached(action) if uri.startswith("file:")]:
        # If the disk does not answer, the model gets their names.
        with suppress(FilesAway):
            read = await threads.run(caller.tenant, files.read_attached, caller, uris, connection.grants)
    dispatch = Dispatch(caller, connection.client, connection.id, connection.life, params["clientSeq"], action, read)
    is_hot = action.get("type") in HOT and not attached_chats.are_in(action.get("message"))
    run = connection.on_loop if is_hot else connection.in_database
    await run(handle, dispatch, params["channel"], face, is_watch=watches.is_own(connection, params["channel"]))


def _attached(action: Mapping[str, Any]) -> list[str]:
    return uris_of_files(action.get("message")) if action.get("type") in _WITH_MESSAGE else []
