"""Resolves an agent's definition and its session's options to the plan of a run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from agents_app import options, providers
from agents_app.errors import ProviderError
from agents_app.fair.threads import Pool
from agents_app.mcp import listing
from agents_app.mcp.access import accesses
from agents_app.mcp.toolset import WithServers
from agents_app.providers import credentials, python
from agents_app.runtime.loop import Plan
from agents_app.runtime.messages import ToolSchema
from agents_app.spec import AgentSpec
from agents_app.tools import questions
from agents_app.tools.commands.host import Commands
from agents_app.tools.files.host import Workspace
from agents_app.tools.toolset import ServerTools


def assemble(
    spec: AgentSpec,
    stored_options: Mapping[str, str],
    enabled: frozenset[str],
    pool: Pool,
    fair_key: Hashable,
    client_tools: Sequence[ToolSchema],
    owner: str = "",
    files: Workspace | None = None,
    tenant: int | None = None,
    commands: Commands | None = None,
) -> Plan:
    """The plan of one run, without the choices of clients; ``ProviderError`` if this process cannot serve the model.

    ``enabled``: the exposed tools that the session turned on (unknown names are ignored). ``fair_key``: the owner whose
    share of ``pool``, and of the threads for long work, the run uses. ``owner``: the session, which has MCP connections
    of its own. ``files``: its workspace, if there is one; ``commands`` runs commands in it. ``tenant``: the session's.
    """
    values = options.effective(spec, stored_options)
    full_model = options.fill(spec.model, values)
    provider_name, _, model = full_model.partition(":")
    provider = providers.find(provider_name)
    if provider is None:
        raise ProviderError("configuration", f"agent {spec.name}: no such provider")
    if isinstance(provider, python.Python):
        provider = provider.for_run(values, pool, fair_key)
    active = [tool for tool in spec.exposed_tools if tool.name in enabled]
    active += [tool for tool in spec.tools if not tool.expose]
    remote = [tool for tool in active if tool.source.startswith(listing.SOURCE)]
    local = [tool for tool in active if not tool.source.startswith(listing.SOURCE)]
    own = ServerTools(local, pool, fair_key, spec.limits, files, commands)
    tools = WithServers(own, remote, accesses(spec, values, owner, tenant), spec.limits)
    return Plan(
        provider=provider,
        full_model=full_model,
        model=model,
        instructions=options.fill(spec.instructions, values),
        settings=options.fill_all(spec.settings, values),
        api_key=api_key_of(spec, provider_name, values),
        base_url=None if spec.base_url is None else options.fill(spec.base_url, values),
        headers={name: options.fill(value, values) for name, value in spec.headers.items()},
        limits=spec.limits,
        tools=tools,
        # A newer definition may have a tool with the name of a client's tool: models refuse two of one name.
        tool_schemas=[*tools.schemas, *(schema for schema in client_tools if not tools.has(schema.name))],
        forms={tool.name: questions.fault for tool in active if tool.source == questions.SOURCE},
        fair_key=fair_key,
    )


def api_key_of(spec: AgentSpec, provider_name: str, values: Mapping[str, str]) -> str | None:
    if spec.api_key is not None:
        return options.fill(spec.api_key, values) or None
    # The operator's key is not sent to an address that a client can choose.
    if spec.base_url is not None and options.places(spec.base_url, values):
        return None
    return credentials.default(provider_name)
