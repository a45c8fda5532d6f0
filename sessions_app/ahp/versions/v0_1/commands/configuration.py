"""Commands about settings, completions and tokens (R230-R232, R350-R360)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents_app.spec import AgentSpec
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import agent_settings
from sessions_app.core.base.errors import AgentUnknown
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import agents

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


def _agent(connection: Connection, params: Any) -> AgentSpec:
    wanted = params.get("provider")
    visible = agents.visible(connection.caller)
    if wanted is None and len(visible) == 1:
        return visible[0]
    found = next((spec for spec in visible if spec.name == wanted), None)
    if found is None:
        raise AgentUnknown(wanted or "")
    return found


async def resolve(connection: Connection, params: Any) -> Any:
    spec = _agent(connection, params)
    return {"schema": agent_settings.config_schema(spec), "values": agent_settings.resolved(spec, params.get("config", {}))}


async def values(connection: Connection, params: Any) -> Any:
    """Empty: the choices of all settings are in their schemas."""
    spec = _agent(connection, params)
    if params["property"] not in agent_settings.config_schema(spec)["properties"]:
        raise jsonrpc.invalid_params("params.property: this agent's sessions have no such setting")
    return {"items": []}


async def completions(connection: Connection, params: Any) -> Any:
    """Empty: agents offer no completions of messages."""
    await connection.in_database(addresses.find, connection.caller, params["session"])
    units = len(params["text"].encode("utf-16-le", "surrogatepass")) // 2
    if not 0 <= params["offset"] <= units:
        raise jsonrpc.invalid_params("params.offset must be within params.text")
    return {"items": []}


async def authenticate(_connection: Connection, _params: Any) -> Any:
    """Always an error: agents need no tokens of clients, because operators configure their keys."""
    raise jsonrpc.invalid_params("params.resource: this host has no protected resources")
