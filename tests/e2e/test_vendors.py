"""Agents on models of other vendors over AAP: signed thinking, tools, waiting, second turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client, client_tool, grant, tool, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.model_server import ModelServer
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import ScriptedServer
from tests.fakes.seals import seal

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
AGENT = """
[[agents]]
name = "{name}"
version = "1.0.0"
model = "{model}"
base_url = "{url}"
instructions = "You are {name}."
history = ["compacted", "full"]
stream = ["delta", "message", "none"]
client_tools = true
images = ["http", "data"]
{settings}
[[agents.options]]
type = "select"
name = "brain"
options = {brains}
default = "{brain}"
[[agents.tools]]
python = "tests.fakes.tools:tide_table"
[[agents.tools]]
python = "tests.fakes.tools:order_rope"
"""


@dataclass
class Vendor:
    """``settings`` make the first of its models think; ``mark`` is in what only that model gets again."""

    name: str
    serve: type[ScriptedServer]
    brains: tuple[str, str]
    settings: str
    variable: str
    key: str
    mark: str


VENDORS = (
    Vendor(
        "anthropic",
        AnthropicServer,
        ("claude-sonnet-4-5", "claude-opus-4-1"),
        "settings = { thinking = { type = 'enabled', budget_tokens = 2048 } }",
        "ANTHROPIC_API_KEY",
        "sk-ant-canary-1",
        seal("thinking", "Secretly."),
    ),
    Vendor(
        "google",
        GoogleServer,
        ("gemini-3-pro", "gemini-3-flash"),
        "",
        "GEMINI_API_KEY",
        "AIza-canary-2",
        seal("call", "tide_table", {"harbour": "Kiel"}),
    ),
    Vendor(
        "openai-responses",
        ResponsesServer,
        ("gpt-5.2", "gpt-5.1"),
        "settings = { reasoning_effort = 'high' }",
        "OPENAI_API_KEY",
        "sk-canary-3",
        '"encrypted_content"',
    ),
)


@dataclass
class Place:
    server: Server
    models: dict[str, ScriptedServer]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Place]:
    """One embedded server whose agents speak to three vendors."""
    directory: Path = tmp_path_factory.mktemp("vendors")
    models = {vendor.name: vendor.serve() for vendor in VENDORS}
    for model in models.values():
        model.start()
    path = directory / "vendors.toml"
    path.write_text(
        "".join(
            AGENT.format(
                name=vendor.name,
                model=f"{vendor.name}:{{brain}}",
                url=models[vendor.name].url,
                settings=vendor.settings,
                brains=json.dumps(vendor.brains),
                brain=vendor.brains[0],
            )
            for vendor in VENDORS
        )
    )
    # As an operator would: each vendor's key in the variable that its own tools read.
    environment = {vendor.variable: vendor.key for vendor in VENDORS} | {"AGENTHOST_AGENTS_FILE": str(path)}
    environment |= {"AGENTHOST_SWEEP_SECONDS": servers.DEFAULT_LEASES["AGENTHOST_SWEEP_SECONDS"]}
    try:
        with servers.running("embedded", directory, _model_server.url, environment=environment) as server:
            yield Place(server, models)
    finally:
        for model in models.values():
            model.stop()


@pytest.fixture
def alice(place: Place) -> Iterator[Client]:
    client = Client(place.server.origin(), place.server.keys.alice)
    yield client
    client.close()


ONE_FIRST = [VENDORS[0], *(pytest.param(vendor, marks=pytest.mark.slow) for vendor in VENDORS[1:])]
"""For a test that restarts the server: the others in the second tier."""


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return found


def agent(vendor: Vendor, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": vendor.name, "tools": list(tools), **more}


def names(events: list[Any]) -> list[str]:
    return list(dict.fromkeys(event.name for event in events))


@pytest.mark.rule("A57", "A58", "A63", "A18")
def test_thinking_is_shown_a_tool_runs_and_the_next_step_brings_back_what_was_signed(
    alice: Client, place: Place, vendor: Vendor
) -> None:
    model = place.models[vendor.name]
    prompt = model.script(
        [
            steps.thinking("I ask ", "the table."),
            steps.text("One moment."),
            steps.call("tide_table", {"harbour": vendor.name}, pieces=3),
            steps.usage(40, 12, cached=10),
        ],
        [steps.thinking("Now I know."), steps.text("At ", "06:12.")],
    )
    session = alice.create(agent(vendor, {"name": "tide_table", "trust": True}))
    outcome = alice.turn(session, prompt, stream="delta")
    assert outcome.stop == "end_turn"
    assert names(outcome.events) == ["turn_start", "thinking_delta", "text_delta", "tool_call", "tool_result", "turn_stop"]
    shown = "".join(event.data["delta"] for event in outcome.events if event.name == "thinking_delta")
    assert shown == "I ask the table.Now I know."
    assert outcome.text == "At 06:12."
    assert place.server.tools.executions("tide_table", harbour=vendor.name) == 1
    assert [request.refused for request in model.requests_of(prompt)] == ["", ""]
    assert model.requests_of(prompt)[0].api_key == vendor.key
    # Data that only the vendor needs is not shown.
    everything = json.dumps(alice.history(session)) + str([event.data for event in outcome.events])
    assert not any(word in everything for word in ("signature", "thoughtSignature", "encrypted_content", "provider_data"))


@pytest.mark.rule("A63", "A65", "A66")
@pytest.mark.parametrize("vendor", ONE_FIRST, indirect=True, ids=lambda vendor: vendor.name)
def test_signed_thinking_survives_a_waiting_turn_and_a_restart(alice: Client, place: Place, vendor: Vendor) -> None:
    model = place.models[vendor.name]
    prompt = model.script(
        [
            steps.thinking("Two of them."),
            steps.call("order_rope", {"metres": 7}, id=f"{vendor.name}_rope"),
            steps.call("ring", {"times": 2}, id=f"{vendor.name}_bell"),
        ],
        [steps.thinking("Both done."), steps.text("Ordered, rung.")],
    )
    session = alice.create(agent(vendor, {"name": "order_rope"}), tools=[client_tool("ring", times={"type": "integer"})])
    asked = alice.turn(session, prompt)
    assert asked.stop == "tool_use"
    rope, bell = (call["toolCallId"] for call in asked.calls)
    place.server.stop()
    place.server.start()
    answered = alice.turn(session, grant(rope), tool(bell, "ding"))
    assert (answered.stop, answered.text) == ("end_turn", "Ordered, rung.")
    assert [request.refused for request in model.requests_of(prompt)] == ["", ""]


def test_signed_thinking_is_sent_only_to_the_model_that_signed_it(alice: Client, place: Place, vendor: Vendor) -> None:
    model = place.models[vendor.name]
    prompt = model.script([steps.thinking("Secretly."), steps.call("tide_table", {"harbour": "Kiel"})], [steps.text("At 06:12.")])
    session = alice.create(agent(vendor, {"name": "tide_table", "trust": True}))
    alice.turn(session, prompt)
    for number, brain in enumerate((vendor.brains[1], vendor.brains[0])):
        script = model.script([steps.text(f"fine {number}")])
        outcome = alice.turn(session, script, agent={"options": {"brain": brain}})
        assert (outcome.stop, outcome.text) == ("end_turn", f"fine {number}")
        asked = model.requests_of(script)[0]
        assert asked.refused == ""
        assert (vendor.mark in json.dumps(asked.body)) is (brain == vendor.brains[0])


@pytest.mark.rule("A86", "A85")
def test_vendor_stop_reasons_become_turn_stop_reasons(alice: Client, place: Place, vendor: Vendor) -> None:
    model = place.models[vendor.name]
    refused = steps.blocked() if vendor.name == "google" else steps.refusal("No.")
    session = alice.create(vendor.name)
    for answer, stop in (
        ([steps.overflow()], "max_tokens"),
        ([refused], "refusal"),
        ([steps.status(401, message=vendor.key)], "error"),
        ([steps.text("half"), steps.drop()], "error"),
        ([steps.text("fine")], "end_turn"),
    ):
        assert alice.turn(session, model.script(answer)).stop == stop
    assert model.requests[-1].refused == ""
    assert vendor.key not in place.server.log_text()


def test_an_image_of_a_user_reaches_the_model(alice: Client, place: Place, vendor: Vendor) -> None:
    model = place.models[vendor.name]
    prompt = model.script([steps.text("A ship.")])
    image = {"type": "image", "url": f"data:image/png;base64,{PIXEL}"}
    outcome = alice.turn(alice.create(vendor.name), user([image, {"type": "text", "text": prompt}]))
    assert outcome.text == "A ship."
    asked = model.requests_of(prompt)[0]
    assert asked.refused == ""
    assert PIXEL in json.dumps(asked.body)


def test_a_cancel_closes_the_vendors_stream(alice: Client, place: Place, vendor: Vendor) -> None:
    model = place.models[vendor.name]
    prompt = model.script([steps.thinking("Hm", signed=False), steps.hang()])
    session = alice.create(vendor.name)
    with alice.stream(session, prompt) as stream:
        stream.until("thinking_delta")
        alice.cancel(session)
        stream.rest()
    assert model.wait_ended(model.wait_request(prompt)) == "closed"
