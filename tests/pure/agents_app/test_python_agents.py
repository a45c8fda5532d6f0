"""Agents that stand in Python: what an agents file takes of them, and what it refuses by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.capabilities import Hooks
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings

from agents_app import loader, options
from agents_app.errors import AgentsFileError
from agents_app.loader import pydantic_agents
from agents_app.spec import AgentSpec, OptionSpec, format_of, from_document, to_document
from agents_app.tools import agent_tools
from tests.fakes import python_agents as fakes

Load = Callable[[str], AgentSpec]
Faults = Callable[[str], list[str]]
Refused = Callable[[Any], list[str]]
HERE = "tests.fakes.python_agents"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loads(text: str) -> AgentSpec:
        path = tmp_path / "agents.toml"
        path.write_text(f"[[agents]]\n{text}", encoding="utf-8")
        return loader.load(path)[0]

    return loads


@pytest.fixture
def faults(load: Load) -> Faults:
    def found(text: str) -> list[str]:
        with pytest.raises(AgentsFileError) as caught:
            load(text)
        return [str(fault) for fault in caught.value.faults]

    return found


@pytest.fixture
def refused(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """What is refused of an object, without the place and the reference in front."""

    def found(agent: Any) -> list[str]:
        monkeypatch.setattr(fakes, "under_test", agent, raising=False)
        start = f"agents[0] (a) python: {HERE}:under_test: "
        return [fault.removeprefix(start) for fault in faults(f'name = "a"\nversion = "1.0.0"\npython = "{HERE}:under_test"')]

    return found


# --- a pydantic_ai.Agent ---


def test_a_pydantic_agent_is_taken_with_model_instructions_settings_and_tools(load: Load) -> None:
    agent = load(f'python = "{HERE}:plain"\n[[agents.options]]\ntype = "text"\nname = "language"\ndefault = "Dutch"')
    assert (agent.name, agent.description, agent.model) == ("plain", "A plain agent.", "openai-chat:gpt-test")
    assert agent.python == f"{HERE}:plain"
    values = options.effective(agent, {})
    # Braces in code mean what they mean in code, but for an option's name.
    assert options.fill(agent.instructions, values) == (
        "You are plain.\n\nSpeak Dutch, never {that}.\n\nBe {{brief}}.\n\nTools are sharp."
    )
    assert agent.settings == {"temperature": 0.1, "stop": ["END"], "top_a": 1}
    assert options.fill_all(agent.headers, values) == {"X-Team": "{b}"}
    assert [(tool.name, tool.timeout) for tool in agent.tools] == [
        ("where", 5),
        ("picture", 7),
        ("on_a_day", 5),
        ("wants_approval", None),
        ("numbers", None),
    ]
    where = agent.tool("where")
    assert where is not None
    assert where.description == "Tells about a place."
    assert where.source == f"agent:{HERE}:plain:where"
    assert where.parameters["properties"]["place"] == {"$ref": "#/$defs/Place", "description": "which one"}


def test_a_definition_taken_from_code_is_stored_and_read_again(load: Load) -> None:
    agent = load(f'python = "{HERE}:plain"')
    assert from_document(*to_document(agent)) == agent
    assert format_of(agent) == 2


def test_the_file_adds_what_the_code_does_not_say(load: Load) -> None:
    agent = load(
        f'python = "{HERE}:plain"\nname = "plain"\ntitle = "T"\nversion = "1.0.0"\nmax_steps = 3\nimages = ["data"]\n'
        'settings = { top_p = 0.5 }\nheaders = { X-Other = "y" }\napi_key = "k"\n[[agents.tools]]\nbuiltin = "calculator"'
    )
    assert (agent.title, agent.version, agent.limits.max_steps, agent.images) == ("T", "1.0.0", 3, ("data",))
    assert agent.settings == {"temperature": 0.1, "stop": ["END"], "top_a": 1, "top_p": 0.5}
    assert set(agent.headers) == {"X-Team", "X-Other"}
    assert [tool.name for tool in agent.tools][-1] == "calculator"


def test_what_both_say_is_a_fault_that_names_both(faults: Faults) -> None:
    text = (
        f'python = "{HERE}:plain"\nname = "other"\ndescription = "x"\nmodel = "demo:"\ninstructions = "x"\n'
        "settings = { temperature = 1 }\nheaders = { X-Team = 'x' }\n"
        '[[agents.tools]]\npython = "tests.fakes.tools:order_rope"\nname = "where"'
    )
    said = [fault.partition(") ")[2] for fault in faults(text)]
    both = f"is set here and in {HERE}:plain (Python); remove one"
    assert said == [
        f"name: the name ('plain' there) {both}",
        f"model: model {both}",
        f"description: description {both}",
        f"headers: X-Team {both}",
        f"instructions: instructions {both}",
        f"settings: temperature {both}",
        f"tools: the tool where {both}",
    ]


def test_instructions_from_a_file_stand_beside_those_in_code_as_little(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "more.md").write_text("more")
    assert len(faults(f'python = "{HERE}:plain"\ninstructions_file = "more.md"')) == 1


def test_an_agent_without_a_model_takes_the_files(load: Load, faults: Faults) -> None:
    assert load(f'name = "a"\npython = "{HERE}:without_a_model"\nmodel = "openai-chat:m"').model == "openai-chat:m"
    assert faults(f'name = "a"\npython = "{HERE}:without_a_model"') == [
        f"agents[0] (a) model: is required: {HERE}:without_a_model in Python has none"
    ]


def test_a_model_object_is_used_itself(load: Load, faults: Faults) -> None:
    assert load(f'name = "a"\npython = "{HERE}:on_a_model"').model == f"python:{HERE}:on_a_model"
    for key in ('api_key = "k"', 'base_url = "http://x"', 'headers = { X-A = "b" }'):
        (fault,) = faults(f'name = "a"\npython = "{HERE}:on_a_model"\n{key}')
        assert "this setting has no effect" in fault


@pytest.mark.parametrize(
    ("named", "model"),
    [
        ("openai:m", "openai-responses:m"),
        ("openai-chat:m", "openai-chat:m"),
        ("openai-responses:m", "openai-responses:m"),
        ("anthropic:m", "anthropic:m"),
        ("google:m", "google:m"),
        ("google-gla:m", "google:m"),
        ("google-cloud:m", "google-vertex:m"),
        ("mistral:m", "mistral:m"),
        ("groq:m", "groq:m"),
    ],
)
def test_a_model_named_by_a_string_is_asked_through_our_provider(
    named: str, model: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fakes, "under_test", Agent(named, defer_model_check=True), raising=False)
    assert load(f'name = "a"\npython = "{HERE}:under_test"').model == model


def test_a_model_of_no_provider_here_is_refused(faults: Faults) -> None:
    found = faults(f'name = "a"\npython = "{HERE}:named_test"')
    assert f"{HERE}:named_test: the model 'test' is of no provider here" in found[0]


def test_an_agent_that_wants_its_key_at_import_is_told_the_way_out(tmp_path: Path, load: Load, faults: Faults) -> None:
    (tmp_path / "eager_agent.py").write_text("from pydantic_ai.exceptions import UserError\nraise UserError('OPENAI_API_KEY')")
    (fault,) = [each for each in faults('name = "a"\npython = "eager_agent:agent"') if " python: " in each]
    assert "importing it raised UserError" in fault
    assert "defer_model_check=True" in fault


def _validator(agent: Agent[Any, Any]) -> None:
    agent.output_validator(lambda text: text)


def _instructions(agent: Agent[Any, Any]) -> None:
    agent.instructions(lambda: "made anew")


def _system_prompt(agent: Agent[Any, Any]) -> None:
    agent.system_prompt(lambda: "made anew")


def _toolset(agent: Agent[Any, Any]) -> None:
    agent.toolset(lambda ctx: FunctionToolset[Any]([]))


def _on_event(agent: Agent[Any, Any]) -> None:
    async def heard(ctx: RunContext[Any], event: Any) -> None:
        """Listens."""

    agent.on_event(heard)


def _instrument(agent: Agent[Any, Any]) -> None:
    agent.instrument = True


class Shape(BaseModel):
    sides: int


@pytest.mark.parametrize(
    ("given", "added", "name"),
    [
        ({"output_type": Shape}, None, "output_type"),
        ({"output_type": [str, Shape]}, None, "output_type"),
        ({"deps_type": int}, None, "deps_type"),
        ({"retries": 3}, None, "retries"),
        ({"retries": {"output": 2}}, None, "retries"),
        ({"validation_context": {"a": 1}}, None, "validation_context"),
        ({"toolsets": [FunctionToolset([]).prefixed("x")]}, None, "toolsets"),
        ({"toolsets": [lambda ctx: None]}, None, "toolsets"),
        ({"end_strategy": "early"}, None, "end_strategy"),
        ({"metadata": {"a": 1}}, None, "metadata"),
        ({"max_concurrency": 3}, None, "max_concurrency"),
        ({"capabilities": [Hooks()]}, None, "capabilities"),
        ({"toolsets": [FunctionToolset([], instructions=lambda: "x")]}, None, "@instructions"),
        ({}, _instructions, "@instructions"),
        ({"instructions": lambda: "x"}, None, "@instructions"),
        ({}, _system_prompt, "@system_prompt"),
        ({}, _validator, "@output_validator"),
        ({}, _toolset, "toolsets"),
        ({}, _on_event, "@on_event"),
        ({}, _instrument, "@instrument"),
    ],
)
def test_what_is_not_taken_is_refused_by_its_name(
    given: dict[str, Any], added: Callable[[Agent[Any, Any]], None] | None, name: str, refused: Refused
) -> None:
    agent: Agent[Any, Any] = Agent("openai-chat:m", defer_model_check=True, **given)
    if added is not None:
        added(agent)
    assert [fault.partition(" cannot be taken: ")[0] for fault in refused(agent)] == [name]


def test_every_parameter_of_an_agent_has_been_decided_on() -> None:
    parameters = set(inspect.signature(Agent.__init__).parameters) - {"self"}
    assert parameters == set(pydantic_agents.PARAMETERS), "a release has other parameters: take or refuse them"


def test_everything_that_an_agent_keeps_has_been_decided_on() -> None:
    """What is registered later leaves its trace in these; a release with another one has another way to register."""
    kept = {name for name in vars(Agent(None)) if not name.startswith("_override_")}
    of_runs = {
        *("_entered_count", "_entered_model_ids", "_entered_models_by_name", "_exit_stack", "_selected_models"),
        *("_constructor_dynamic_toolset_count", "_output_schema", "_output_toolset"),
        # Filled by capabilities alone, which are refused.
        *("_cap_toolsets", "_cap_instructions", "_cap_native_tools", "_cap_model_settings"),
    }
    judged = {
        *("_name", "_description", "end_strategy", "_event_hooks", "_root_capability", "_model", "model_settings"),
        *("_output_type", "_instrument", "_metadata", "_deps_type", "_output_validators", "_instructions"),
        *("_system_prompts", "_system_prompt_functions", "_system_prompt_dynamic_functions", "_max_tool_retries"),
        *("_max_output_retries", "_tool_timeout", "_validation_context", "_function_toolset", "_dynamic_toolsets"),
        *("_user_toolsets", "_event_stream_handler", "_concurrency_limiter"),
    }
    assert kept == of_runs | judged


def test_every_parameter_of_a_tool_has_been_decided_on() -> None:
    parameters = set(inspect.signature(Tool.__init__).parameters) - {"self"}
    assert parameters == set(agent_tools.TOOL_PARAMETERS)


def test_every_common_model_setting_has_been_decided_on() -> None:
    assert set(ModelSettings.__annotations__) == set(pydantic_agents.SETTINGS)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"max_retries": 2}, "has retries"),
        ({"requires_approval": True}, "has requires_approval"),
        ({"prepare": lambda ctx, definition: definition}, "has a prepare function"),
        ({"args_validator": lambda ctx, x: None}, "has an args_validator"),
        ({"strict": True}, "has strict"),
        ({"sequential": True}, "has sequential"),
        ({"metadata": {"a": 1}}, "has metadata"),
        ({"defer_loading": True}, "has defer_loading"),
        ({"include_return_schema": True}, "has include_return_schema"),
    ],
)
def test_a_tool_that_wants_more_is_refused_by_its_name(given: dict[str, Any], why: str, refused: Refused) -> None:
    agent = Agent("openai-chat:m", defer_model_check=True, tools=[Tool(fakes.double, **given)])
    assert [fault[: len(f"tool double {why}")] for fault in refused(agent)] == [f"tool double {why}"]


def test_a_tool_that_takes_a_run_context_is_refused_by_its_name(refused: Refused) -> None:
    (fault,) = refused(Agent("openai-chat:m", defer_model_check=True, tools=[fakes.takes_context]))
    assert fault.startswith("tool takes_context takes a RunContext")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"timeout": 3}, "timeout"),
        ({"thinking": "high"}, "thinking"),
        ({"openai_reasoning_effort": "low"}, "openai_reasoning_effort"),
        ({"temperature": float("nan")}, "temperature"),
    ],
)
def test_a_model_setting_that_cannot_be_carried_over_is_refused(settings: Any, name: str, refused: Refused) -> None:
    (fault,) = refused(Agent("openai-chat:m", defer_model_check=True, model_settings=settings))
    assert fault.startswith(f"the model setting {name} cannot be taken")


def test_settings_made_by_a_function_are_refused(refused: Refused) -> None:
    (fault,) = refused(Agent("openai-chat:m", defer_model_check=True, model_settings=lambda ctx: {}))
    assert fault.startswith("model_settings cannot be taken")


def test_a_subclass_is_refused_for_its_methods_would_never_run(faults: Faults) -> None:
    (fault,) = faults(f'name = "a"\npython = "{HERE}:derived"')
    assert fault.endswith("is a Derived: its own methods would never run; name a plain Agent")


# --- a class of our own interface ---


def test_a_class_brings_its_title_instructions_options_and_tools(load: Load) -> None:
    agent = load(f'name = "a"\npython = "{HERE}:Counter"')
    assert (agent.title, agent.description, agent.model) == ("Counter", "Counts.", f"python:{HERE}:Counter")
    assert agent.options == (OptionSpec("text", "language", default="English"), OptionSpec("secret", "pin"))
    assert options.fill(agent.instructions, {"language": "Welsh", "pin": ""}) == "Speak Welsh; {this} stays, {{that}} too."
    double = agent.tool("double")
    assert double is not None
    assert double.source == f"agent:{HERE}:Counter:double"
    assert double.parameters["properties"] == {"x": {"type": "integer", "description": "the number"}}


def test_an_option_of_both_is_a_fault(faults: Faults) -> None:
    (fault,) = faults(f'name = "a"\npython = "{HERE}:Counter"\n[[agents.options]]\ntype = "text"\nname = "pin"')
    assert fault.startswith("agents[0] (a) options: the option pin is set here and in")


def test_a_class_does_not_summarise_its_own_conversation(load: Load, faults: Faults) -> None:
    text = f'name = "a"\npython = "{HERE}:Mirror"\ncontext_tokens = 1000\ncompaction = "summarise"'
    (fault,) = faults(text)
    assert fault.startswith("agents[0] (a) compaction: an agent class with respond cannot summarise")
    assert load(f'{text}\n[agents.summary]\nmodel = "openai-chat:m"').compaction == "summarise"
    assert load(text.replace("Mirror", "on_a_model")).compaction == "summarise"


def test_an_instance_is_taken_too(load: Load) -> None:
    assert load(f'name = "a"\npython = "{HERE}:ready_made"').model == f"python:{HERE}:ready_made"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NoGenerator", "its method respond is not a generator; write it as async def or def with yield"),
        ("NeedsArguments", "making an instance of it, without arguments, raised TypeError"),
    ],
)
def test_a_class_that_cannot_speak_is_refused(name: str, why: str, faults: Faults) -> None:
    assert faults(f'name = "a"\npython = "{HERE}:{name}"') == [f"agents[0] (a) python: {HERE}:{name}: {why}"]


def test_attributes_of_the_wrong_kind_are_all_told(faults: Faults) -> None:
    said = [fault.partition("BadAttributes: ")[2] for fault in faults(f'name = "a"\npython = "{HERE}:BadAttributes"')]
    assert said == [
        "its title must be a string",
        "its options must be a list of tables, each as [[agents.options]] has it",
        "tools holds something that is not a function",
        "tool <lambda>: its parameter numbers cannot be given by name",
    ]


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("no_such_module:agent", "cannot import no_such_module: no such module"),
        (f"{HERE}:nothing", f"the module {HERE} has no nothing"),
        (f"{HERE}:double", f"{HERE}:double is a function: name a pydantic_ai.Agent, or a class with a method respond"),
        (f"{HERE}:Place", f"{HERE}:Place is a class: name a pydantic_ai.Agent, or a class with a method respond"),
        (f"{HERE}:HERE", f"the module {HERE} has no HERE"),
        ("nonsense", "write it as module:name"),
    ],
)
def test_what_is_no_agent_is_a_fault_with_its_place(reference: str, why: str, faults: Faults) -> None:
    assert faults(f'name = "a"\npython = "{reference}"') == [f"agents[0] (a) python: {why}"]


def test_an_agent_in_code_without_a_name_needs_one_in_the_file(faults: Faults) -> None:
    assert faults(f'python = "{HERE}:Counter"') == [f"agents[0] name: is required: {HERE}:Counter in Python has none"]


def test_the_models_of_the_library_are_named_in_model_too(load: Load) -> None:
    assert load(f'name = "a"\nmodel = "python:{HERE}:model"').model == f"python:{HERE}:model"
    assert isinstance(fakes.model, TestModel)


def test_a_model_that_the_code_does_not_have_is_a_fault(faults: Faults) -> None:
    assert faults(f'name = "a"\nmodel = "python:{HERE}:nothing"') == [f"agents[0] (a) model: the module {HERE} has no nothing"]
    assert faults(f'name = "a"\nmodel = "python:{HERE}:double"')[0].endswith("nor a class with a method respond")
