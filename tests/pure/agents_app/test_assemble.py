"""A definition made ready for one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.providers import credentials
from agents_app.runtime.assemble import assemble
from agents_app.runtime.loop import Plan
from agents_app.runtime.messages import ToolSchema
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec

AGENT = AgentSpec(
    "a",
    "openai-chat:{model}",
    api_key="{key}",
    base_url="http://models.example/v1",
    headers={"X-Key": "Token {key}"},
    instructions="Answer in {language}.",
    settings={"temperature": 0.2, "user": "{language}"},
    options=(
        OptionSpec("select", "model", default="small:1", options=("small:1", "large")),
        OptionSpec("secret", "key", default="sk-own"),
        OptionSpec("text", "language", default="English"),
    ),
    tools=(
        ToolSpec("calculator", "builtin:calculator"),
        ToolSpec("hidden", "builtin:current_time", expose=False),
        ToolSpec("current_time", "builtin:current_time"),
    ),
)


def made(spec: AgentSpec = AGENT, enabled: tuple[str, ...] = (), client: tuple[str, ...] = (), **stored: str) -> Plan:
    pool = FairPool(1)
    return assemble(spec, stored, frozenset(enabled), pool, "tenant", [ToolSchema(name, "") for name in client])


@pytest.fixture
def own_key() -> Iterator[None]:
    credentials.set_defaults({"openai-chat": "sk-environment"})
    yield
    credentials.set_defaults({})


@pytest.mark.rule("A52")
def test_options_fill_everything_a_run_needs() -> None:
    found = made(language="{key}", key="sk-mine")
    assert (found.full_model, found.model) == ("openai-chat:small:1", "small:1")
    assert found.instructions == "Answer in {key}."
    assert found.settings == {"temperature": 0.2, "user": "{key}"}
    assert (found.api_key, found.headers) == ("sk-mine", {"X-Key": "Token sk-mine"})
    assert "sk-mine" not in repr(found)


@pytest.mark.rule("A52", "A25", "A68")
def test_tools_are_enabled_ones_then_hidden_ones_then_the_clients() -> None:
    found = made(enabled=("current_time", "gone", "hidden"), client=("door",))
    assert [schema.name for schema in found.tool_schemas] == ["current_time", "hidden", "door"]
    assert found.tools.has("hidden")
    assert not found.tools.has("calculator")


def test_a_clients_tool_gives_way_to_an_active_server_tool_of_its_name() -> None:
    found = made(client=("hidden", "calculator"))
    assert [schema.name for schema in found.tool_schemas] == ["hidden", "calculator"]


def test_the_operators_own_key_serves_agents_that_name_none(own_key: None) -> None:
    assert made(replace(AGENT, api_key=None)).api_key == "sk-environment"
    assert made().api_key == "sk-own"


def test_the_operators_own_key_does_not_go_to_a_host_the_client_chose(own_key: None) -> None:
    chosen = replace(AGENT, api_key=None, base_url="http://{model}.example")
    assert made(chosen).api_key is None


def test_a_provider_this_process_does_not_know_is_a_matter_of_configuration() -> None:
    with pytest.raises(ProviderError) as caught:
        made(replace(AGENT, model="newer:m"))
    assert caught.value.fault == "configuration"
