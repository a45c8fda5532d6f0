"""What a run works with, resolved from the agent's definition and what its session's clients have decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from django.conf import settings

from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.runtime import loop
from agents_app.runtime.assemble import assemble
from agents_app.runtime.interface import Change
from agents_app.runtime.messages import ToolSchema
from agents_app.runtime.room import Room
from agents_app.spec import AgentSpec
from sessions_app.core.records import clients
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.turns import Visitor
from sessions_app.core.worker.loading import Loaded

AUTO = "auto"


@dataclass(slots=True)
class Decided:
    """What of a run's plan may change between its steps: trust, approval, the tools of the session's client."""

    settings: Settings
    approval: str
    visitor: Visitor | None = None
    unexposed: AbstractSet[str] = field(default_factory=frozenset)

    def why_free(self, name: str) -> str:
        """Why a tool of the server needs nobody's word; empty: it asks for one."""
        if name in self.unexposed:
            return "not-needed"
        return "setting" if self.approval == AUTO or name in self.settings.trusted else ""


def make(
    loaded: Loaded, decided: Decided, pool: FairPool, fair_key: int, provider_failed: Callable[[ProviderError], None]
) -> loop.Plan:
    spec = loaded.spec
    decided.unexposed = {tool.name for tool in spec.tools if not tool.expose}
    enabled = loaded.settings.enabled | loaded.own_tools
    brought = loaded.settings.client_schemas() if spec.client_tools else []
    assembled = assemble(spec, loaded.options, enabled, pool, fair_key, brought, loaded.session_public_id)
    plan = assembled.plan(
        why_free=decided.why_free,
        client_tools=_owners(spec, decided),
        provider_failed=provider_failed,
        titles=_titles(spec, decided),
    )
    return replace(plan, room=Room(settings.AGENTHOST_MESSAGE_BYTES, settings.AGENTHOST_TURN_BYTES - loaded.stored))


def change(spec: AgentSpec, decided: Decided, plan: loop.Plan) -> Change:
    """The plan's tools by what is decided now."""
    theirs = [*decided.settings.client_schemas(), *(clients.schemas(decided.visitor.tools) if decided.visitor else [])]
    server = list(plan.tools.schemas)
    return Change(_unique([*server, *(theirs if spec.client_tools else [])]), _owners(spec, decided), _titles(spec, decided))


def _titles(spec: AgentSpec, decided: Decided) -> dict[str, str]:
    """What people call the tools, where that is not their name."""
    theirs = [*(decided.visitor.tools if decided.visitor else []), *decided.settings.client_tools]
    named = {tool["name"]: tool["title"] for tool in theirs if tool.get("title")}
    return {**named, **{tool.name: tool.title for tool in spec.tools if tool.title}}


def _unique(schemas: Sequence[ToolSchema]) -> list[ToolSchema]:
    """Models refuse two tools of one name: the server's come first, then an application's."""
    return list({schema.name: schema for schema in reversed(schemas)}.values())[::-1]


def _owners(spec: AgentSpec, decided: Decided) -> Mapping[str, str | None]:
    if not spec.client_tools:
        return {}
    owners: dict[str, str | None] = {}
    if decided.visitor is not None:
        owners.update({tool["name"]: decided.visitor.id for tool in decided.visitor.tools})
    owners.update({tool["name"]: None for tool in decided.settings.client_tools})
    return owners
