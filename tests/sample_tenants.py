"""Sample data for tests within one process: two tenants with keys, agents, sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from sessions_app.core.sessions import creating
from sessions_app.core.tenancy import access, keys, tenants

if TYPE_CHECKING:
    from sessions_app.core.base.caller import Caller
    from sessions_app.models import Session, Tenant


@dataclass(frozen=True)
class SampleTenant:
    """A tenant with two keys: one with every scope, and one that may only read."""

    tenant: Tenant
    key: str
    caller: Caller
    reading_key: str


@dataclass(frozen=True)
class SampleTenants:
    """Two tenants that must be isolated from each other."""

    alice: SampleTenant
    bob: SampleTenant


def make_sample_tenant(slug: str) -> SampleTenant:
    tenant, _ = tenants.create(slug)

    def issue(name: str, scopes: Sequence[str]) -> str:
        return keys.issue(tenant, name=name, scopes=scopes, expires_at=None, allowed_agents=None, actor="the tests").raw

    full = issue("all", ["*"])
    return SampleTenant(tenant, full, keys.authenticate(full), issue("reader", ["sessions:read"]))


def make_sample_tenants() -> SampleTenants:
    return SampleTenants(make_sample_tenant("alice"), make_sample_tenant("bob"))


def make_session(
    caller: Caller,
    agent: str = "echo",
    *,
    tools: list[dict[str, Any]] | None = None,
    options: Mapping[str, str] | None = None,
    client_tools: Sequence[dict[str, Any]] = (),
    seed: Sequence[dict[str, Any]] = (),
) -> Session:
    """A session of the agent; the agent must be in the registry (see ``agents``)."""
    wanted = creating.SessionRequest(agent, tools, dict(options or {}), list(client_tools), list(seed))
    return access.session(caller, creating.create(caller, wanted).public_id)


def make_session_of_client(caller: Caller, **given: Any) -> Session:
    """A session as created by an AHP client."""
    return access.session(caller, creating.create(caller, creating.ClientSessionRequest(**given)).public_id)


def agents(model_url: str) -> list[AgentSpec]:
    """``echo``, which follows the model script, and ``pilot``, which has options and tools; for ``registry.use``."""
    text = {"type": "string"}
    return [
        AgentSpec(
            name="echo",
            version="1.0.0",
            model="openai-chat:gpt-test",
            base_url=model_url,
            api_key="sk-echo",
            client_tools=True,
            images=("http", "data"),
            limits=Limits(retries=0),
        ),
        AgentSpec(
            name="pilot",
            version="1.0.0",
            model="openai-chat:gpt-test",
            base_url=model_url,
            api_key="{model_key}",
            instructions="Tone: {tone}.",
            client_tools=True,
            limits=Limits(retries=0),
            options=(
                OptionSpec("text", "tone", default="brief"),
                OptionSpec("secret", "model_key", default="sk-default"),
                OptionSpec("select", "units", default="metric", options=("metric", "imperial")),
            ),
            tools=(
                ToolSpec(
                    "tide_table",
                    "python:tests.fakes.tools:tide_table",
                    description="Times of high and low water.",
                    parameters={"type": "object", "properties": {"harbour": text}, "required": ["harbour"]},
                ),
                ToolSpec(
                    "order_rope",
                    "python:tests.fakes.tools:order_rope",
                    description="Orders mooring rope.",
                    parameters={"type": "object", "properties": {"metres": {"type": "number"}}, "required": ["metres"]},
                ),
                ToolSpec(
                    "whisper",
                    "python:tests.fakes.tools:whisper",
                    expose=False,
                    parameters={"type": "object", "properties": {"words": text}, "required": ["words"]},
                ),
            ),
        ),
    ]
