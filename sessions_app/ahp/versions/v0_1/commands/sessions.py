"""Commands about sessions: create, dispose, list, and fetch turns (R110-R119)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.ahp import uris
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import agent_settings, values
from sessions_app.ahp.versions.v0_1.projection.sessions import summary_of, turn_of
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AgentUnknown
from sessions_app.core.records import addresses, clients
from sessions_app.core.sessions import creating, deleting, entries, state
from sessions_app.core.tenancy import agents
from sessions_app.core.workspaces import making, threads
from sessions_app.core.workspaces.making import WorkingDirectory

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_TURNS = 50
_MOST_TURNS = 200


async def create(connection: Connection, params: Any) -> None:
    client = params.get("activeClient")
    if client is not None and client["clientId"] != connection.client:
        raise jsonrpc.invalid_params("params.activeClient.clientId must be this client's own id")
    if faults := content.unstorable(params, ("params",)):
        raise jsonrpc.invalid_params(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    directory, workspace = params.get("workingDirectory"), None
    if directory is not None:
        if uris.scheme(directory) is None:
            raise jsonrpc.invalid_params("params.workingDirectory must be a URI with a scheme and a path")
        caller = connection.caller
        workspace = await threads.run(caller.tenant, making.working_directory, caller, directory)
    await connection.in_database(_create, connection.caller, params, workspace)


def _create(caller: Caller, params: Any, workspace: WorkingDirectory | None) -> None:
    uri: str = params["session"]
    scheme = uris.scheme(uri)
    if scheme is None or uri == ROOT:
        raise jsonrpc.invalid_params("params.session must be a URI with a scheme and a path, and not the root's")
    fork = None
    if (source := params.get("fork")) is not None:
        fork = creating.Fork(addresses.find(caller, source["session"]), source["turnId"])
    agent = params.get("provider")
    if agent is None and fork is None:
        agent = _agent_named_by(caller, scheme)
    model = params.get("model")
    if model is not None and model.get("config"):
        raise jsonrpc.invalid_params("params.model.config must be empty: this model has no configuration")
    options, approval = agent_settings.split(params.get("config", {}))
    if approval not in (None, "ask", "auto"):
        raise jsonrpc.invalid_params(f"params.config.{values.APPROVAL} must be ask or auto")
    wanted = creating.ClientSessionRequest(
        uri=uri,
        agent=agent,
        model=None if model is None else model["id"],
        options=options,
        approval=approval,
        client=entry_of(params.get("activeClient")),
        directory=params.get("workingDirectory"),
        workspace=workspace,
        fork=fork,
    )
    creating.create(caller, wanted)


def _agent_named_by(caller: Caller, scheme: str) -> str:
    """The agent that the URI's scheme names, or else the only agent (R111)."""
    names = [spec.name for spec in agents.visible(caller)]
    if scheme in names:
        return scheme
    if len(names) == 1:
        return names[0]
    raise AgentUnknown(scheme)


def entry_of(client: Any) -> clients.Entry | None:
    """An active client as the core's value."""
    if client is None:
        return None
    tools = [values.tool_from(tool) for tool in client["tools"]]
    return clients.Entry(client["clientId"], client.get("displayName"), tools, client.get("customizations"))


async def dispose(connection: Connection, params: Any) -> None:
    await connection.in_database(_dispose, connection.caller, params["session"])


def _dispose(caller: Caller, uri: str) -> None:
    deleting.delete(caller, addresses.find(caller, uri))


async def list_sessions(connection: Connection, _params: Any) -> Any:
    return {"items": await connection.in_database(_listed, connection.caller)}


def _listed(caller: Caller) -> list[dict[str, Any]]:
    return [summary_of(summary) for summary in entries.listed(caller)]


async def fetch_turns(connection: Connection, params: Any) -> Any:
    limit = params.get("limit", _TURNS)
    if limit <= 0:
        raise jsonrpc.invalid_params("params.limit must be positive")
    return await connection.in_database(
        _turns, connection.caller, params["session"], params.get("before"), min(limit, _MOST_TURNS)
    )


def _turns(caller: Caller, uri: str, before: str | None, limit: int) -> dict[str, Any]:
    page = state.page(caller, addresses.find(caller, uri), before, limit)
    return {"turns": [turn_of(turn, uri) for turn in page.turns], "hasMore": page.older}
