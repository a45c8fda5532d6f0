"""Which agents a caller may use."""

from __future__ import annotations

from agents_app import registry
from agents_app.spec import AgentSpec
from sessions_app.core.caller import Caller
from sessions_app.core.errors import AgentGone, Fault, InvalidInput
from sessions_app.models import Session


def visible(caller: Caller) -> list[AgentSpec]:
    """In the operator's order."""
    return [spec for spec in registry.agents().values() if caller.may_use(spec.name)]


def for_creation(caller: Caller, name: str) -> AgentSpec:
    spec = registry.find(name)
    if spec is None or not caller.may_use(name):
        raise InvalidInput([Fault(("agent", "name"), "there is no agent with this name")])
    return spec


def for_turn(caller: Caller, session: Session) -> AgentSpec:
    """The definition in force now; AgentGone if the operator took the agent away."""
    spec = registry.find(session.agent_name)
    if spec is None or not caller.may_use(session.agent_name):
        raise AgentGone(session.agent_name)
    return spec
