"""Everything one run needs, resolved: an agent's definition, filled from its session's options."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agents_app import options, providers
from agents_app.errors import ProviderError
from agents_app.fair.threads import Pool
from agents_app.mcp import listing
from agents_app.mcp.access import accesses
from agents_app.mcp.toolset import WithServers
from agents_app.providers import credentials, python
from agents_app.runtime.interface import Limits, Provider, ToolSet
from agents_app.runtime.loop import Plan
from agents_app.runtime.messages import ToolSchema
from agents_app.spec import AgentSpec
from agents_app.tools import questions
from agents_app.tools.toolset import ServerTools


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the loop puts into each model request of a run, and the tools it may run.

    ``model`` is what the provider calls it, ``full_model`` has the provider's name in front.
    """

    provider: Provider
    full_model: str
    model: str
    instructions: str
    settings: Mapping[str, Any]
    api_key: str | None = field(repr=False)
    base_url: str | None
    headers: Mapping[str, str] = field(repr=False)
    limits: Limits
    tools: ToolSet
    tool_schemas: list[ToolSchema]
    forms: Mapping[str, Callable[[Mapping[str, Any]], str | None]]
    fair_key: Hashable

    def plan(
        self,
        *,
        why_free: Callable[[str], str],
        client_tools: Mapping[str, str | None],
        provider_failed: Callable[[ProviderError], None],
        titles: Mapping[str, str],
    ) -> Plan:
        """With what the session's clients have decided: what a run works with."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return Plan(**own, why_free=why_free, client_tools=client_tools, provider_failed=provider_failed, titles=titles)


def assemble(
    spec: AgentSpec,
    stored_options: Mapping[str, str],
    enabled: frozenset[str],
    pool: Pool,
    fair_key: Hashable,
    client_tools: Sequence[ToolSchema],
    owner: str = "",
) -> Assembled:
    """Resolve ``spec`` for one run. ``ProviderError`` if its model cannot be served by this process.

    ``enabled`` names the exposed tools the session turned on (names of tools that are gone are ignored);
    ``fair_key`` says whose share of ``pool`` blocking tools use, and whose of the threads for long work; ``owner`` whose
    connections to MCP servers: the session.
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
    own = ServerTools([tool for tool in active if not tool.source.startswith(listing.SOURCE)], pool, fair_key, spec.limits)
    tools = WithServers(own, remote, accesses(spec, values, owner), spec.limits)
    return Assembled(
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
        # A newer definition may have brought a tool of a name the client already uses: models refuse two.
        tool_schemas=[*tools.schemas, *(schema for schema in client_tools if not tools.has(schema.name))],
        forms={tool.name: questions.fault for tool in active if tool.source == questions.SOURCE},
        fair_key=fair_key,
    )


def api_key_of(spec: AgentSpec, provider_name: str, values: Mapping[str, str]) -> str | None:
    if spec.api_key is not None:
        return options.fill(spec.api_key, values) or None
    # The operator's own key goes only where the operator alone decides it goes.
    if spec.base_url is not None and options.places(spec.base_url, values):
        return None
    return credentials.default(provider_name)
