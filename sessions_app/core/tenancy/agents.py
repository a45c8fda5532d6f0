"""Which agents a caller may use."""

from __future__ import annotations

from collections.abc import Mapping

from agents_app import options, registry
from agents_app.providers import python
from agents_app.spec import AgentSpec
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AgentGone, AgentUnknown, Fault, InvalidInput
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


MODEL = "model"
"""The option that chooses between an agent's models, where it is a select."""


def has_models(spec: AgentSpec) -> bool:
    """Whether clients choose the model."""
    option = spec.option(MODEL)
    return option is not None and option.type == "select"


def models(spec: AgentSpec) -> tuple[str, ...]:
    """The models a client may name: the choices of the option, or the one that the agent always uses."""
    option = spec.option(MODEL)
    if option is not None and option.type == "select":
        return option.options
    model = options.fill(spec.model, options.effective(spec, {}))
    # How the operator's code is called is the operator's business.
    return (spec.name if model.startswith(f"{python.NAME}:") else model,)


def model_in_force(spec: AgentSpec, stored: Mapping[str, str]) -> str:
    """The one of them that the next run uses, given the options that clients have set."""
    return options.effective(spec, stored)[MODEL] if has_models(spec) else models(spec)[0]


def known(caller: Caller, name: str) -> AgentSpec:
    spec = registry.find(name)
    if spec is None or not caller.may_use(name):
        raise AgentUnknown(name)
    return spec
