"""What clients are shown of an agent's model."""

from __future__ import annotations

from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.core.tenancy import agents


def test_a_model_is_named_as_the_agents_file_names_it() -> None:
    assert agents.models(AgentSpec("a", "openai-chat:m")) == ("openai-chat:m",)
    chosen = OptionSpec("select", "model", default="x", options=("x", "y"))
    assert agents.models(AgentSpec("a", "openai-chat:{model}", options=(chosen,))) == ("x", "y")


def test_an_agent_in_python_does_not_show_where_its_code_stands() -> None:
    assert agents.models(AgentSpec("dock", "python:wharf:Dock", python="wharf:Dock")) == ("dock",)
