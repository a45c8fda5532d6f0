"""Commands about sessions: create, dispose, list (V42, V67, V80-V86)."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from sessions_app.ahp import uris
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import agent_settings, values
from sessions_app.ahp.versions.v0_9 import addresses, spelling
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.plugins import entry_of
from sessions_app.ahp.versions.v0_9.projection.sessions import summary_of
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AddressTaken, AgentUnknown, SessionNotFound
from sessions_app.core.sessions import creating, deleting, entries
from sessions_app.core.tenancy import agents
from sessions_app.core.workspaces import making, threads
from sessions_app.core.workspaces.making import WorkingDirectory
from sessions_app.models import Session

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_PAGE = 1000


# --- create ---


async def create(connection: Connection, params: Any) -> None:
    client = params.get("activeClient")
    if client is not None and client["clientId"] != connection.client:
        raise jsonrpc.invalid_params("params.activeClient.clientId must be this client's own id")
    if faults := content.unstorable(params, ("params",)):
        raise jsonrpc.invalid_params(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    # An agent here works in one directory.
    directory, workspace = next(iter(params.get("workingDirectories", ())), None), None
    if directory is not None:
        if uris.scheme(directory) is None:
            raise jsonrpc.invalid_params("params.workingDirectories.0 must be a URI with a scheme and a path")
        caller = connection.caller
        workspace = await threads.run(caller.tenant, making.working_directory, caller, directory)
    await connection.in_database(_create, connection.caller, params, directory, workspace)


def _create(caller: Caller, params: Any, directory: str | None, workspace: WorkingDirectory | None) -> None:
    uri: str = params["channel"]
    if (fault := spelling.fault_of_new(uri)) is not None:
        raise jsonrpc.invalid_params(f"params.channel {fault}")
    if addresses.find(caller.seeing_everything(), uri) is not None:
        raise AddressTaken(uri)
    options, approval = agent_settings.split(params.get("config", {}))
    if approval not in (None, "ask", "auto"):
        raise jsonrpc.invalid_params(f"params.config.{values.APPROVAL} must be ask or auto")
    wanted = creating.ClientSessionRequest(
        uri=uri,
        agent=params["provider"] if "provider" in params else _only_agent(caller),
        options=options,
        approval=approval,
        client=entry_of(params.get("activeClient")),
        directory=directory,
        workspace=workspace,
        family=spelling.FAMILY,
    )
    creating.create(caller, wanted)


def _only_agent(caller: Caller) -> str:
    names = [spec.name for spec in agents.visible(caller)]
    if len(names) != 1:
        raise AgentUnknown("")
    return names[0]


# --- dispose ---


async def dispose(connection: Connection, params: Any) -> None:
    await connection.in_database(_dispose, connection.caller, params["channel"])


def _dispose(caller: Caller, uri: str) -> None:
    deleting.delete(caller, session_at(caller, uri))


def session_at(caller: Caller, uri: str) -> Session:
    """SessionNotFound if this is no session's URI."""
    found = addresses.find(caller, uri)
    if found is None or found.kind != "session":
        raise SessionNotFound
    return found.session


# --- list ---


async def list_sessions(connection: Connection, params: Any, *, face: Face) -> Any:
    limit, cursor = params.get("limit", _PAGE), params.get("cursor")
    if limit <= 0:
        raise jsonrpc.invalid_params("params.limit must be positive")
    after = None if cursor is None else _position(cursor, face)
    return await connection.in_database(_page, connection.caller, min(limit, _PAGE), after, face)


def _page(caller: Caller, limit: int, after: entries.Position | None, face: Face) -> dict[str, Any]:
    page = entries.page(caller, limit, after)
    shown: dict[str, Any] = {"items": [summary_of(entry, face) for entry in page.entries]}
    return shown if page.next is None else {**shown, "nextCursor": _cursor(page.next, face)}


def _cursor(position: entries.Position, face: Face) -> str:
    return base64.urlsafe_b64encode(f"{face.family}/{position.modified_at}/{position.row}".encode()).decode()


def _position(cursor: str, face: Face) -> entries.Position:
    try:
        family, modified_at, row = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().split("/")
        if family != face.family:
            raise ValueError(family)
        return entries.Position.of(modified_at, int(row))
    except (binascii.Error, ValueError):
        raise jsonrpc.invalid_params("params.cursor is none that this host gave to a client of this version") from None
