"""Makes a run's plan from the agent's definition and the choices of the session's clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from django.conf import settings

from agents_app.access_rules import Policy
from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.runtime import loop
from agents_app.runtime.assemble import assemble
from agents_app.runtime.interface import Change
from agents_app.runtime.messages import ToolSchema
from agents_app.runtime.size_limits import SizeLimits
from agents_app.spec import AgentSpec
from sessions_app.core.records import clients
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.terminals.agent_commands import SessionCommands
from sessions_app.core.turns import ActiveClient, Claimed
from sessions_app.core.worker.file_access import SessionAccess
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.workspaces.agent_files import SessionFiles
from sessions_app.models import Session

AUTO = "auto"


@dataclass(slots=True)
class ClientChoices:
    """The inputs of a plan that may change between two steps: trusted tools, approval, the active clients' tools."""

    settings: Settings
    approval: str
    active_clients: Sequence[ActiveClient] = ()
    starter: str | None = None
    """The client that started the turn."""
    internal_tools: AbstractSet[str] = field(default_factory=frozenset)
    """The agent's tools that clients do not see (`expose = false`)."""

    @property
    def clients(self) -> list[ActiveClient]:
        """Of tools with the same name the first one here counts: the turn's starter, then who joined first."""
        return sorted(self.active_clients, key=lambda client: client.id != self.starter)

    def why_free(self, name: str) -> str:
        """Why a server tool may run without a client's permission; empty: it asks for one."""
        if name in self.internal_tools:
            return "not-needed"
        return "setting" if self.approval == AUTO or name in self.settings.trusted else ""


def make(
    loaded: Loaded, choices: ClientChoices, pool: FairPool, claimed: Claimed, provider_failed: Callable[[ProviderError], None]
) -> loop.Plan:
    spec = loaded.spec
    choices.internal_tools = {tool.name for tool in spec.tools if not tool.expose}
    enabled = loaded.settings.enabled | loaded.own_tools
    tenant, session = claimed.tenant, loaded.session_public_id
    files = commands = access = None
    policy = Policy(spec.access, "agent")
    row = Session(pk=claimed.session, tenant_id=tenant, public_id=session)
    if settings.AGENTHOST_WORKSPACES_DIR is not None:
        restricted = policy if policy.restricts else None
        files = SessionFiles(row, restricted)
        commands = SessionCommands(tenant, claimed.session, claimed.turn_id, spec.network)
        access = None if restricted is None else SessionAccess(row, spec, restricted)
    client_schemas = loaded.settings.client_schemas() if spec.client_tools else []
    return replace(
        assemble(spec, loaded.options, enabled, pool, tenant, client_schemas, session, files, tenant, commands),
        why_free=choices.why_free,
        access=access,
        client_tools=_owners(spec, choices),
        provider_failed=provider_failed,
        titles=_titles(spec, choices),
        size_limits=SizeLimits(settings.AGENTHOST_MESSAGE_BYTES, settings.AGENTHOST_TURN_BYTES - loaded.stored),
    )


def change(spec: AgentSpec, choices: ClientChoices, plan: loop.Plan) -> Change:
    """The plan's tools with the clients' current choices."""
    schemas = list(plan.tools.schemas)
    if spec.client_tools:
        schemas += choices.settings.client_schemas()
        for client in choices.clients:
            schemas += clients.schemas(client.tools)
    return Change(_unique(schemas), _owners(spec, choices), _titles(spec, choices))


def _titles(spec: AgentSpec, choices: ClientChoices) -> dict[str, str]:
    """The tools' titles for people, where they differ from the names."""
    # Of tools with the same name the last one here counts: an application's, or that of the first client.
    of_clients = [tool for client in reversed(choices.clients) for tool in client.tools] + choices.settings.client_tools
    named = {tool["name"]: tool["title"] for tool in of_clients if tool.get("title")}
    return {**named, **{tool.name: tool.title for tool in spec.tools if tool.title}}


def _unique(schemas: Sequence[ToolSchema]) -> list[ToolSchema]:
    """One tool per name, because models refuse two: the server's before an application's, before a client's."""
    found: dict[str, ToolSchema] = {}
    for schema in schemas:
        found.setdefault(schema.name, schema)
    return list(found.values())


def _owners(spec: AgentSpec, choices: ClientChoices) -> Mapping[str, str | None]:
    if not spec.client_tools:
        return {}
    owners: dict[str, str | None] = {}
    for client in reversed(choices.clients):
        owners.update({tool["name"]: client.id for tool in client.tools})
    owners.update({tool["name"]: None for tool in choices.settings.client_tools})
    return owners
