"""An operator's agents file: what it comes down to, and how its faults are told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents_app import loader, options
from agents_app.errors import AgentsFileError
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, OptionSpec, Price

Load = Callable[[str], list[AgentSpec]]
Faults = Callable[[str], list[str]]

ISSUE = """
[[agents]]
name = "research-agent"
title = "Research Agent"
version = "1.2.0"
description = "Searches and summarises."
model = "openai-chat:{model}"
api_key = "{provider_key}"
base_url = "http://127.0.0.1:9999/v1"
instructions = "Answer in {language}."
history = ["compacted", "full"]
stream = ["delta", "message", "none"]
client_tools = true
images = ["http", "data"]
context_tokens = 8000
max_steps = 12
settings = { temperature = 0.2 }
headers = { X-Team = "blue" }
limits = { first_output = 30, tool_output_bytes = 5000 }

[[agents.options]]
type = "select"
name = "model"
title = "Model"
options = ["gpt-test", "gpt-other"]
default = "gpt-test"

[[agents.options]]
type = "secret"
name = "provider_key"
default = "sk-default"

[[agents.options]]
type = "text"
name = "language"
default = "English"

[[agents.tools]]
python = "tests.fakes.tools:order_rope"
timeout = 30
idempotent = true
[[agents.tools]]
builtin = "calculator"
expose = false
"""

BARE = """
[[agents]]
name = "a"
model = "openai-chat:m"
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loads(text: str) -> list[AgentSpec]:
        path = tmp_path / "agents.toml"
        path.write_text(text, encoding="utf-8")
        return loader.load(path)

    return loads


@pytest.fixture
def faults(load: Load) -> Faults:
    def found(text: str) -> list[str]:
        with pytest.raises(AgentsFileError) as caught:
            load(text)
        return [str(fault) for fault in caught.value.faults]

    return found


def test_a_full_description_is_taken_as_written(load: Load) -> None:
    (agent,) = load(ISSUE)
    assert (agent.name, agent.title, agent.version) == ("research-agent", "Research Agent", "1.2.0")
    assert (agent.model, agent.api_key, agent.base_url) == ("openai-chat:{model}", "{provider_key}", "http://127.0.0.1:9999/v1")
    assert agent.settings == {"temperature": 0.2}
    assert agent.headers == {"X-Team": "blue"}
    assert agent.context_tokens == 8000
    assert agent.limits == Limits(first_output=30.0, tool_output_bytes=5000, max_steps=12)
    assert agent.option("model") == OptionSpec("select", "model", "Model", None, "gpt-test", ("gpt-test", "gpt-other"))
    assert [tool.name for tool in agent.tools] == ["order_rope", "calculator"]
    assert [tool.name for tool in agent.exposed_tools] == ["order_rope"]
    rope = agent.tool("order_rope")
    assert rope is not None
    assert (rope.description, rope.timeout, rope.idempotent) == ("Orders mooring rope.", 30.0, True)
    assert rope.parameters == {
        "type": "object",
        "properties": {
            "metres": {"type": "number", "description": "how much of it"},
            "colour": {"type": "string", "default": "grey"},
        },
        "required": ["metres"],
        "additionalProperties": False,
    }


def test_what_is_left_out_has_sensible_defaults(load: Load) -> None:
    (agent,) = load(BARE)
    assert agent.history == ("compacted", "full")
    assert agent.stream == ("delta", "message", "none")
    assert (agent.client_tools, agent.images, agent.context_tokens, agent.tools) == (False, (), None, ())
    assert agent.limits == Limits()
    assert agent.title is None


WORKSPACE = BARE + "[agents.workspace]\n"


def test_a_template_is_a_folder_or_archive_relative_to_the_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files.TAR.gz").write_bytes(b"")
    for name in ("files", "files.TAR.gz", str(tmp_path / "files")):
        assert load(f'{WORKSPACE}template = "{name}"')[0].template == str(tmp_path / Path(name).name)
    assert load(WORKSPACE)[0].template is None


def test_the_network_of_commands_is_a_list_of_hosts_or_every_public_one(load: Load, faults: Faults) -> None:
    assert load(WORKSPACE)[0].network == ()
    assert load(WORKSPACE + "network = false")[0].network == ()
    assert load(WORKSPACE + "network = true")[0].network == ("*",)
    assert load(WORKSPACE + 'network = ["packages.example", "*.packages.example:443"]')[0].network == (
        "packages.example",
        "*.packages.example:443",
    )
    place = "agents[0].workspace (a) network: "
    (fault,) = faults(WORKSPACE + 'network = ["https://packages.example"]')
    assert fault.startswith(place + "'https://packages.example': an entry is a host")
    assert faults(WORKSPACE + 'network = "packages.example"') == [place + "must be true, false or a list of hosts"]


def test_a_template_that_cannot_be_used_is_a_fault(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "files.txt").write_bytes(b"")
    os.mkfifo(tmp_path / "files.zip")
    place = "agents[0].workspace (a) template: "
    assert faults(WORKSPACE + 'template = ""') == [place + "must not be empty"]
    assert faults(WORKSPACE + 'template = "none.tar"') == [place + "none.tar cannot be read: No such file or directory"]
    for name in ("files.txt", "files.zip"):
        (fault,) = faults(f'{WORKSPACE}template = "{name}"')
        assert fault == place + f"{name} must be a folder or a file whose name ends with .tar, .tar.gz, .tgz or .zip"
    assert faults(WORKSPACE + "template = 1") == [place + "must be a string"]
    assert faults(WORKSPACE + 'size = "1"') == ["agents[0].workspace (a) size: unknown key"]


def test_prices_are_by_model_with_or_without_its_provider(load: Load) -> None:
    (agent,) = load(
        BARE
        + """
[agents.price.m]
input = 2
output = 8.5
cache_read = 0
[agents.price."openai-chat:m"]
input = 0.15
output = 0.6
"""
    )
    assert agent.prices == {"m": Price(2.0, 8.5, 0.0), "openai-chat:m": Price(0.15, 0.6)}


def test_a_price_may_be_that_of_any_model_that_a_client_can_choose(load: Load) -> None:
    (agent,) = load(ISSUE + "[agents.price.gpt-other]\ninput = 1\noutput = 2\n[agents.price.gpt-test]\ninput = 1\noutput = 2\n")
    assert sorted(agent.prices) == ["gpt-other", "gpt-test"]


def test_agents_keep_their_order(load: Load) -> None:
    assert [agent.name for agent in load(BARE + BARE.replace('"a"', '"0"'))] == ["a", "0"]


def test_instructions_come_from_a_file_beside_the_agents_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "research.md").write_text("Grüße, {{name}}.", encoding="utf-8")
    (agent,) = load(BARE + 'instructions_file = "research.md"')
    assert agent.instructions == "Grüße, {{name}}."
    assert options.fill(agent.instructions, {}) == "Grüße, {name}."


def test_braces_of_other_kinds_are_plain_text_in_instructions(load: Load) -> None:
    text = """Answer as {"a": 1}, { } or {0}."""
    (agent,) = load(BARE + f"instructions = '{text}'")
    assert options.fill(agent.instructions, {"a": "x"}) == text


def test_a_select_without_default_takes_its_first_choice(load: Load) -> None:
    (agent,) = load(BARE + '[[agents.options]]\ntype="select"\nname="o"\noptions=["x","y"]')
    assert agent.options[0].default == "x"


OPTION = '\n[[agents.options]]\nname = "o"\n'
SELECT = OPTION + 'type = "select"\noptions = ["http://a.example", "http://b.example"]\ndefault = "http://a.example"\n'
TOOL = "\n[[agents.tools]]\n"


@pytest.mark.parametrize(
    ("text", "table", "key"),
    [
        ("", "file", "agents"),
        ("agents = 3", "file", "agents"),
        ("agents = [3]", "agents[0]", ""),
        ("[[agents]", "file", ""),
        (BARE + "[other]", "file", "other"),
        ('[[agents]]\nname = "a"', "agents[0] (a)", "model"),
        ('[[agents]]\nmodel = "demo:"', "agents[0]", "name"),
        (BARE.replace('"a"', '" "'), "agents[0]", "name"),
        (BARE.replace('"a"', "3"), "agents[0]", "name"),
        (BARE + BARE, "agents[1] (a)", "name"),
        (BARE + 'version = "1.2"', "agents[0] (a)", "version"),
        (BARE + 'version = "v1.2.3"', "agents[0] (a)", "version"),
        (BARE + "version = 1.2", "agents[0] (a)", "version"),
        (BARE + "colour = 3", "agents[0] (a)", "colour"),
        (BARE + "max_steps = 0", "agents[0] (a)", "max_steps"),
        (BARE + "max_steps = true", "agents[0] (a)", "max_steps"),
        (BARE + 'max_steps = "64"', "agents[0] (a)", "max_steps"),
        (BARE + "context_tokens = 0", "agents[0] (a)", "context_tokens"),
        (BARE + "context_tokens = 1.5", "agents[0] (a)", "context_tokens"),
        (BARE + 'history = ["some"]', "agents[0] (a)", "history"),
        (BARE + 'stream = ["delta", "delta"]', "agents[0] (a)", "stream"),
        (BARE + "images = [[1]]", "agents[0] (a)", "images"),
        (BARE + 'client_tools = "yes"', "agents[0] (a)", "client_tools"),
        (BARE + 'compaction = "shrink"', "agents[0] (a)", "compaction"),
        (BARE + "price = 3", "agents[0] (a)", "price"),
        (BARE + "[agents.price.m]\ninput = 1", "agents[0].price.m (a)", "output"),
        (BARE + "[agents.price.m]\ninput = -1\noutput = 1", "agents[0].price.m (a)", "input"),
        (BARE + "[agents.price.m]\ninput = 1\noutput = inf", "agents[0].price.m (a)", "output"),
        (BARE + "[agents.price.m]\ninput = 1\noutput = true", "agents[0].price.m (a)", "output"),
        (BARE + "[agents.price.m]\ninput = 1\noutput = 1\ncached = 1", "agents[0].price.m (a)", "cached"),
        (BARE + "[agents.price.n]\ninput = 1\noutput = 1", "agents[0] (a)", 'price."n"'),
        (BARE + "limits = { sleep = 3 }", "agents[0].limits (a)", "sleep"),
        (BARE + "limits = { connect = 0 }", "agents[0].limits (a)", "connect"),
        (BARE + "limits = { connect = inf }", "agents[0].limits (a)", "connect"),
        (BARE + "settings = { at = 2024-01-01 }", "agents[0] (a)", "settings"),
        (BARE + "settings = { temperature = nan }", "agents[0] (a)", "settings"),
        (BARE + "settings = { stream = false }", "agents[0] (a)", "settings"),
        (BARE + 'headers = { Host = "x" }', "agents[0] (a)", "headers"),
        (BARE + 'headers = { X-A = "x\\ny" }', "agents[0] (a)", "headers"),
        (BARE + 'headers = { "X A" = "x" }', "agents[0] (a)", "headers"),
        (BARE + 'instructions_file = "missing.md"', "agents[0] (a)", "instructions_file"),
        (BARE + 'instructions = "x"\ninstructions_file = "agents.toml"', "agents[0] (a)", "instructions_file"),
        (BARE + 'instructions = "Answer in {language}."', "agents[0] (a)", "instructions"),
        (BARE + 'base_url = "ftp://x"', "agents[0] (a)", "base_url"),
        (BARE + 'base_url = "http://user:word@x"', "agents[0] (a)", "base_url"),
        (BARE + 'base_url = "http://x:port"', "agents[0] (a)", "base_url"),
        (BARE.replace("openai-chat:m", "nobody:m"), "agents[0] (a)", "model"),
        (BARE.replace("openai-chat:m", "gpt"), "agents[0] (a)", "model"),
        (BARE.replace("openai-chat:m", "openai-chat:"), "agents[0] (a)", "model"),
        (BARE + OPTION, "agents[0].options[0] (a)", "type"),
        (BARE + OPTION + 'type = "number"', "agents[0].options[0] (a)", "type"),
        (BARE + OPTION + 'type = "text"\ndefault = 3', "agents[0].options[0] (a)", "default"),
        (BARE + OPTION + 'type = "text"\noptions = ["a"]', "agents[0].options[0] (a)", "options"),
        (BARE + OPTION + 'type = "select"', "agents[0].options[0] (a)", "options"),
        (BARE + OPTION + 'type = "select"\noptions = ["a", 3]', "agents[0].options[0] (a)", "options"),
        (BARE + OPTION + 'type = "select"\noptions = ["a", "a"]', "agents[0].options[0] (a)", "options"),
        (BARE + OPTION + 'type = "select"\noptions = ["a"]\ndefault = "b"', "agents[0].options[0] (a)", "default"),
        (BARE + (OPTION + 'type = "text"') * 2, "agents[0].options[1] (a)", "name"),
        (BARE + TOOL, "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'builtin = "abacus"', "agents[0].tools[0] (a)", "builtin"),
        (BARE + TOOL + 'builtin = "calculator"\npython = "m:f"', "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'python = "no_such_module_here:f"', "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'python = "tests.fakes.tools:no_such"', "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'python = "tests.fakes.tools:LONGEST_BLOCK"', "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'python = "no colon"', "agents[0].tools[0] (a)", "python"),
        (BARE + TOOL + 'builtin = "calculator"\ntimeout = -1', "agents[0].tools[0] (a)", "timeout"),
        (BARE + TOOL + 'builtin = "calculator"\nexpose = "no"', "agents[0].tools[0] (a)", "expose"),
        (BARE + TOOL + 'builtin = "run_command"\nidempotent = true', "agents[0].tools[0] (a)", "idempotent"),
        (BARE + TOOL + 'builtin = "calculator"\ntrust = true', "agents[0].tools[0] (a)", "trust"),
        (BARE + TOOL + 'builtin = "calculator"\nname = "cal cu"', "agents[0].tools[0] (a)", "name"),
        (BARE + (TOOL + 'builtin = "calculator"') * 2, "agents[0].tools[1] (a)", "name"),
        # what a client chooses, and where it may stand
        (BARE.replace(":m", ":{o}") + OPTION + 'type = "text"', "agents[0] (a)", "model"),
        (BARE + 'base_url = "{o}"' + OPTION + 'type = "text"', "agents[0] (a)", "base_url"),
        (BARE.replace(":m", ":{o}") + OPTION + 'type = "secret"', "agents[0] (a)", "model"),
        (BARE + 'base_url = "http://x/{o}"' + OPTION + 'type = "secret"', "agents[0] (a)", "base_url"),
        (BARE + 'instructions = "{o}"' + OPTION + 'type = "secret"', "agents[0] (a)", "instructions"),
        (BARE + 'settings = { user = ["{o}"] }' + OPTION + 'type = "secret"', "agents[0] (a)", "settings"),
        (BARE + 'base_url = "{o}"' + SELECT.replace("http://b", "file://b"), "agents[0] (a)", "base_url"),
        (BARE.replace("openai-chat:m", "{o}") + SELECT, "agents[0] (a)", "model"),
        (BARE + 'base_url = "{o}"\napi_key = "sk-own"' + SELECT, "agents[0] (a)", "api_key"),
        (
            BARE
            + 'base_url = "{o}"\napi_key = "{k}"'
            + SELECT
            + OPTION.replace('"o"', '"k"')
            + 'type = "secret"\ndefault = "sk"',
            "agents[0] (a)",
            "base_url",
        ),
        (
            BARE
            + 'base_url = "{o}"\nheaders = { X-Key = "{k}" }'
            + SELECT
            + OPTION.replace('"o"', '"k"')
            + 'type = "secret"\ndefault = "sk"',
            "agents[0] (a)",
            "base_url",
        ),
    ],
)
def test_a_fault_is_told_with_its_table_and_key(faults: Faults, text: str, table: str, key: str) -> None:
    found = faults(text)
    assert len(found) == 1, found
    assert found[0].startswith(f"{table} {key}".strip() + ":")


def test_every_fault_of_the_file_is_told_at_once(faults: Faults) -> None:
    text = BARE + 'version = "1"\ncolour = 1\n' + TOOL + 'builtin = "abacus"\ntimeout = 0\n' + OPTION + 'type = "select"'
    assert len(faults(text + BARE.replace('"a"', '"b"') + "max_steps = -1")) == 6


def test_a_secret_without_default_may_go_to_a_chosen_host(load: Load) -> None:
    text = BARE + 'base_url = "{o}"\napi_key = "{k}"' + SELECT + OPTION.replace('"o"', '"k"') + 'type = "secret"'
    assert load(text)[0].base_url == "{o}"


def test_a_missing_module_inside_a_tools_module_is_told_apart(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "harbour_tools.py").write_text("import no_such_dependency\n")
    (tmp_path / "shouting_tools.py").write_text("raise SystemExit('secret words')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (fault,) = faults(BARE + TOOL + 'python = "harbour_tools:f"')
    assert "it needs the module no_such_dependency, which is not installed" in fault
    (fault,) = faults(BARE + TOOL + 'python = "shouting_tools:f"')
    assert "SystemExit" in fault
    assert "secret words" not in fault


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(AgentsFileError) as caught:
            loader.load(path)
        assert str(path) in str(caught.value)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'[[agents]]\nname = "\xe4"')
    with pytest.raises(AgentsFileError, match="UTF-8"):
        loader.load(latin)


def test_a_fault_never_repeats_a_secrets_default(faults: Faults) -> None:
    text = (
        BARE
        + 'base_url = "{o}"\napi_key = "{k}"'
        + SELECT
        + OPTION.replace('"o"', '"k"')
        + 'type = "secret"\ndefault = "sk-hush"'
    )
    assert "sk-hush" not in "".join(faults(text))


def test_models_that_are_wherever_you_have_them_need_an_address(load: Load, faults: Faults) -> None:
    text = '[[agents]]\nname = "a"\nmodel = "azure:gpt"\n'
    assert faults(text) == ["agents[0] (a) model: azure has no default address; set base_url"]
    assert load(text + 'base_url = "https://x.openai.azure.com/openai/v1"')[0].model == "azure:gpt"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('"Heavy"', "did you mean heavy?"),
        ('"agenthost"', "did you mean default?"),
        ('""', "a queue's name has 1 to 40 lower-case letters, digits and hyphens, and begins with a letter"),
        ("7", "must be a string"),
    ],
)
def test_a_queue_needs_a_name_that_workers_can_be_started_with(faults: Faults, value: str, reason: str) -> None:
    (fault,) = faults(f'[[agents]]\nname = "a"\nmodel = "demo:guide"\nqueue = {value}\n')
    assert fault.startswith("agents[0] (a) queue: ")
    assert fault.endswith(reason)


def test_an_agent_is_in_its_queue_or_in_the_default_one(load: Load) -> None:
    text = '[[agents]]\nname = "a"\nmodel = "demo:guide"\n[[agents]]\nname = "b"\nmodel = "demo:guide"\nqueue = "heavy"\n'
    assert [agent.queue for agent in load(text)] == ["default", "heavy"]
