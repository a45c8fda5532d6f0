"""The agents that a caller may use, and their models."""

from __future__ import annotations

from collections.abc import Mapping

from agents_app import options, registry
from agents_app.providers import python
from agents_app.spec import AgentSpec
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AgentGone, AgentUnknown, Fault, InvalidInput
from sessions_app.models import Session


def visible(caller: Caller) -> list[AgentSpec]:
    """The agents that the caller may use, in the operator's order."""
    return [spec for spec in registry.agents().values() if caller.may_use(spec.name)]


def _usable(caller: Caller, name: str) -> AgentSpec | None:
    return registry.find(name) if caller.may_use(name) else None


def for_creation(caller: Caller, name: str) -> AgentSpec:
    """The agent of a new session; InvalidInput if it does not exist or is not allowed."""
    spec = _usable(caller, name)
    if spec is None:
        raise InvalidInput([Fault(("agent", "name"), "there is no agent with this name")])
    return spec


def for_turn(caller: Caller, session: Session) -> AgentSpec:
    """The current definition of a session's agent; AgentGone if the agent was removed or is not allowed."""
    spec = _usable(caller, session.agent_name)
    if spec is None:
        raise AgentGone(session.agent_name)
    return spec


def known(caller: Caller, name: str) -> AgentSpec:
    """The agent with this name; AgentUnknown if it does not exist or is not allowed."""
    spec = _usable(caller, name)
    if spec is None:
        raise AgentUnknown(name)
    return spec


MODEL = "model"
"""The name of the option that selects between an agent's models, if it is a select."""


def has_models(spec: AgentSpec) -> bool:
    """Whether clients can select the model."""
    option = spec.option(MODEL)
    return option is not None and option.type == "select"


def models(spec: AgentSpec) -> tuple[str, ...]:
    """The models that a client may select, or the one that the agent always uses."""
    option = spec.option(MODEL)
    if option is not None and option.type == "select":
        return option.options
    model = options.fill(spec.model, options.effective(spec, {}))
    # A Python agent's import path is internal to the operator: show the agent's name.
    return (spec.name if model.startswith(f"{python.NAME}:") else model,)


def model_in_force(spec: AgentSpec, stored: Mapping[str, str]) -> str:
    """The model that the next run uses with these stored options."""
    return options.effective(spec, stored)[MODEL] if has_models(spec) else models(spec)[0]
