"""AAP version 3: agents in /meta."""

from __future__ import annotations

import re

import pytest

from tests.e2e import agents_file
from tests.e2e.client import Client
from tests.e2e.server import Server

AGENTS = ["echo", "pilot", "hasty", "bare", "mute", "forgetful", "climber", "mate", "unreachable", "coder"]


@pytest.mark.rule("A19")
def test_meta_gives_the_number_of_the_version_and_the_agents_in_the_operators_order(alice: Client) -> None:
    meta = alice.meta()
    assert set(meta) == {"version", "agents"}
    assert meta["version"] == 3
    assert isinstance(meta["version"], int)
    assert [agent["name"] for agent in meta["agents"]] == AGENTS


@pytest.mark.rule("A19", "A28")
def test_a_key_sees_and_uses_only_the_agents_it_is_allowed(server: Server) -> None:
    narrow = server.client(server.keys.echo_only)
    assert [agent["name"] for agent in narrow.meta()["agents"]] == ["echo"]
    refused = narrow.post("/sessions", {"agent": {"name": "pilot"}})
    unknown = narrow.post("/sessions", {"agent": {"name": "never"}})
    assert refused.status_code == unknown.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/agent/name"


@pytest.mark.rule("A20")
def test_an_agent_shows_its_public_side_and_leaves_out_what_has_no_value(alice: Client) -> None:
    pilot = alice.agent("pilot")
    assert (pilot["title"], pilot["version"], pilot["description"]) == (
        "Harbour Pilot",
        "0.9.2",
        "Knows tides and berths.",
    )
    assert set(pilot) == {"name", "title", "version", "description", "tools", "options", "capabilities"}
    assert set(alice.agent("bare")) == {"name", "version", "capabilities"}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+.*", agent["version"]) for agent in alice.meta()["agents"])


@pytest.mark.rule("A20", "A68", "A30")
def test_meta_hides_unexposed_tools_instructions_addresses_and_keys(alice: Client) -> None:
    text = alice.get("/meta").text
    hidden = ("whisper", "Tone:", "Keep it short", "http://", "gpt-test/v1", "sk-", agents_file.DEFAULT_KEY)
    for word in (*hidden, agents_file.HEADER_SECRET, "temperature", "X-Team", "null"):
        assert word not in text


@pytest.mark.rule("A20", "A15")
def test_tools_are_listed_with_their_schemas(alice: Client) -> None:
    tools = {tool["name"]: tool for tool in alice.agent("pilot")["tools"]}
    assert list(tools)[:2] == ["tide_table", "order_rope"]
    assert "calculator" in tools
    for tool in tools.values():
        assert set(tool) - {"title"} == {"name", "description", "parameters"}
        assert isinstance(tool["parameters"], dict)
    rope = tools["order_rope"]
    assert rope["description"].startswith("Orders mooring rope")
    assert rope["parameters"]["properties"]["metres"]["type"] == "number"
    assert rope["parameters"]["required"] == ["metres"]


@pytest.mark.rule("A21", "A22")
def test_options_have_their_shapes_and_a_secrets_default_is_empty(alice: Client) -> None:
    assert alice.agent("pilot")["options"] == [
        {"type": "select", "name": "units", "options": ["metric", "imperial"], "default": "metric"},
        {"type": "text", "name": "tone", "description": "How to speak", "default": "brief"},
        {"type": "select", "name": "brain", "title": "Brain", "options": ["gpt-test", "gpt-other"], "default": "gpt-test"},
        {"type": "secret", "name": "model_key", "title": "Model key", "default": ""},
    ]


@pytest.mark.rule("A23")
def test_capabilities_are_empty_objects_and_empty_groups_are_left_out(alice: Client) -> None:
    assert alice.agent("echo")["capabilities"] == {
        "history": {"compacted": {}, "full": {}},
        "stream": {"delta": {}, "message": {}, "none": {}},
        "application": {"tools": {}},
        "image": {"http": {}, "data": {}},
    }
    assert alice.agent("bare")["capabilities"] == {"history": {"full": {}}, "stream": {"delta": {}}}
    assert alice.agent("mute")["capabilities"] == {"stream": {"none": {}}, "image": {"http": {}}}
