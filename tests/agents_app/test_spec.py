"""Definitions as documents: they come back as they were, and their secrets stay out."""

from __future__ import annotations

from pathlib import Path

from agents_app import exact_json, loader, spec
from tests.agents_app.test_loader import ISSUE


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
