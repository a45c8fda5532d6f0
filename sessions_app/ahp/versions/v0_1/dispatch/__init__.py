"""Actions that clients dispatch: validated, passed to the core, echoed or rejected (R80-R91).

The core writes the echo into the journal in the transaction of the action, so that every subscriber in every process gets it
in the tenant's order. A rejection takes the same path, to its connection alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.versions.v0_1.dispatch import client_files
from sessions_app.ahp.versions.v0_1.dispatch.handling import handle
from sessions_app.ahp.versions.v0_1.dispatch.types import Dispatch
from sessions_app.core.base.errors import FilesAway
from sessions_app.core.workspaces import files, threads

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


_OF_THE_WEB = ("http:", "https:", "data:")
_MOST_ATTACHED = 32
"""Attached files of one message that are read; of others the model gets the name."""
_WITH_MESSAGE = frozenset({"session/turnStarted", "session/pendingMessageSet"})
HOT = frozenset({"session/turnStarted"})
"""Actions that are handled on the loop, because they need few round trips."""


async def take(connection: Connection, params: Any) -> None:
    """The client notification ``dispatchAction``. Returns when the action has taken effect, was rejected or ignored."""
    caller, action = connection.caller, params["action"]
    read: dict[str, bytes] = {}
    if uris := _attached(action):
        # If the disk does not answer, the model gets their names.
        with suppress(FilesAway):
            own = [uri for uri in uris if uri.startswith("file:")]
            read = await threads.run(caller.tenant, files.read_attached, caller, own, connection.grants)
        read |= await client_files.read(connection, action.get("session"), [uri for uri in uris if uri not in read])
    dispatch = Dispatch(caller, connection.client, connection.id, connection.life, params["clientSeq"], action, read)
    run = connection.on_loop if action.get("type") in HOT else connection.in_database
    await run(handle, dispatch)


def _attached(action: Mapping[str, Any]) -> list[str]:
    """The URIs of files that are attached to a user message (R154). The action was not validated yet."""
    if action.get("type") not in _WITH_MESSAGE:
        return []
    return uris_of_files(action.get("userMessage"))


def uris_of_files(message: Any) -> list[str]:
    """The URIs of attached files in a message that was not validated yet."""
    attachments = message.get("attachments") if isinstance(message, dict) else None
    if not isinstance(attachments, list):
        return []
    uris = [each.get("uri") for each in attachments if isinstance(each, dict) and each.get("type") == "resource"]
    of_files = (uri for uri in uris if isinstance(uri, str) and not uri.lower().startswith(_OF_THE_WEB) and ":" in uri)
    return list(dict.fromkeys(of_files))[:_MOST_ATTACHED]
