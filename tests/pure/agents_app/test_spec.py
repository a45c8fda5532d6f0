"""Definitions as documents: they come back as they were, and their secrets stay out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_app import exact_json, loader, spec
from tests.pure.agents_app.test_loader import ISSUE


def test_a_definition_survives_its_document_and_no_secret_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(ISSUE.replace('"{provider_key}"', '"sk-literal"').replace('"blue"', '"hush-header"'))
    (agent,) = loader.load(path)
    document, secrets = spec.to_document(agent)
    written = exact_json.dumps(document)
    assert secrets == {
        "/api_key": "sk-literal",
        "/headers/X-Team": "hush-header",
        "/options/1/default": "sk-default",
    }
    assert not any(secret in written for secret in secrets.values())
    assert spec.from_document(exact_json.loads(written), secrets) == agent
    assert exact_json.dumps(spec.to_document(spec.from_document(document, secrets))[0]) == written


def test_a_definition_shows_no_secret_when_printed() -> None:
    agent = spec.AgentSpec(
        "a",
        "openai-chat:m",
        api_key="sk-hush",
        headers={"X": "hush-header"},
        options=(spec.OptionSpec("secret", "k", default="hush-default"),),
    )
    assert "hush" not in repr(agent)
    assert hash(agent) == hash(agent)


def _with_everything() -> spec.AgentSpec:
    return spec.AgentSpec(
        "a",
        "openai-chat:m",
        compaction="summarise",
        mcp=(spec.McpSpec("files", "https://mcp.example.com", headers={"Authorization": "Bearer hush-mcp"}, exclude=("rm*",)),),
        summary=spec.SummarySpec("anthropic:small", api_key="sk-hush", headers={"X": "hush-x"}),
        prices={"m": spec.Price(1.0, 2.5, 0.1)},
        python="crew:agent",
    )


def test_a_definition_that_says_everything_survives_its_document_and_hides_every_secret() -> None:
    agent = _with_everything()
    document, secrets = spec.to_document(agent)
    written = exact_json.dumps(document)
    assert secrets == {
        "/summary/api_key": "sk-hush",
        "/summary/headers/X": "hush-x",
        "/mcp/0/headers/Authorization": "Bearer hush-mcp",
    }
    assert "hush" not in written
    assert "hush" not in repr(agent)
    assert spec.from_document(exact_json.loads(written), secrets) == agent


def test_what_an_agent_does_not_use_is_not_in_its_document_so_that_the_release_before_can_read_it() -> None:
    document, _ = spec.to_document(spec.AgentSpec("a", "openai-chat:m"))
    assert not document.keys() & spec.FIELDS_SINCE.keys()
    assert spec.from_document(document, {}) == spec.AgentSpec("a", "openai-chat:m")


def test_the_template_of_workspaces_is_of_one_host_and_not_in_the_document() -> None:
    document, _ = spec.to_document(spec.AgentSpec("a", "openai-chat:m", template="/srv/files"))
    assert document == spec.to_document(spec.AgentSpec("a", "openai-chat:m"))[0]


@pytest.mark.parametrize(
    ("agent", "number"),
    [
        (spec.AgentSpec("a", "openai-chat:m"), 1),
        (spec.AgentSpec("a", "demo:guide", tools=(spec.ToolSpec("calculator", "builtin:calculator"),)), 1),
        (spec.AgentSpec("a", "anthropic:m"), 2),
        (spec.AgentSpec("a", "openai-chat:m", compaction="summarise"), 2),
        (spec.AgentSpec("a", "openai-chat:m", mcp=(spec.McpSpec("files", "https://mcp.example.com"),)), 2),
        (spec.AgentSpec("a", "openai-chat:m", mcp=(spec.McpSpec("files", program=spec.ProgramSpec(("x",))),)), 3),
        (spec.AgentSpec("a", "openai-chat:m", summary=spec.SummarySpec("openai-chat:small")), 2),
        (spec.AgentSpec("a", "openai-chat:m", prices={"m": spec.Price(1.0, 2.0)}), 2),
        (spec.AgentSpec("a", "openai-chat:m", python="crew:agent"), 2),
        (spec.AgentSpec("a", "openai-chat:m", network=("packages.example",)), 4),
        (spec.AgentSpec("a", "openai-chat:m", queue="heavy"), 8),
        (spec.AgentSpec("a", "openai-chat:m", tools=(spec.ToolSpec("fetch_url", "builtin:fetch_url"),)), 2),
    ],
)
def test_a_definition_is_of_the_oldest_format_that_can_say_it(agent: spec.AgentSpec, number: int) -> None:
    assert spec.format_of(agent) == number


def test_the_variables_of_programs_are_secrets_of_the_definition() -> None:
    program = spec.ProgramSpec(("x", "y"), env={"TOKEN": "hush-1", "B": "hush-{t}"}, workspace="read", network=True)
    agent = spec.AgentSpec(
        "a", "openai-chat:m", mcp=(spec.McpSpec("files", program=program), spec.McpSpec("web", "https://x/mcp"))
    )
    document, secrets = spec.to_document(agent)
    written = exact_json.dumps(document)
    assert secrets == {"/mcp/0/program/env/TOKEN": "hush-1", "/mcp/0/program/env/B": "hush-{t}"}
    assert "hush" not in written
    assert "hush" not in repr(agent)
    # The release before knows no programs, and reads servers with an address as ever.
    assert "program" not in document["mcp"][1]
    assert spec.from_document(exact_json.loads(written), secrets) == agent
