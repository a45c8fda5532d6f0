"""What can be configured, completed, and which tokens are needed (R230-R232, R350-R360)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents_app.spec import AgentSpec
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import agents as words
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
    return {"schema": words.config_schema(spec), "values": words.resolved(spec, params.get("config", {}))}


async def values(connection: Connection, params: Any) -> Any:
    """No setting's choices depend on anything that has to be asked for, so there are none to offer."""
    spec = _agent(connection, params)
    if params["property"] not in words.config_schema(spec)["properties"]:
        raise jsonrpc.invalid_params("params.property is no setting of this agent's sessions")
    return {"items": []}


async def completions(connection: Connection, params: Any) -> Any:
    """No agent has anything to complete a message with, so there is nothing to offer."""
    await connection.in_database(addresses.find, connection.caller, params["session"])
    units = len(params["text"].encode("utf-16-le", "surrogatepass")) // 2
    if not 0 <= params["offset"] <= units:
        raise jsonrpc.invalid_params("params.offset does not lie within params.text")
    return {"items": []}


async def authenticate(_connection: Connection, _params: Any) -> Any:
    """No agent needs a client's token; operators give agents their keys."""
    raise jsonrpc.invalid_params("params.resource is no protected resource of this host")
