"""Which agents a process serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_app import registry
from agents_app.errors import AgentsFileError
from agents_app.providers import credentials
from agents_app.spec import AgentSpec
from tests.pure.agents_app.test_loader import BARE


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    monkeypatch.setattr(registry, "_agents", None)
    settings.AGENTHOST_AGENTS_FILE = None
    before = dict(credentials._defaults)
    credentials.set_defaults({})
    yield
    credentials.set_defaults(before)


def test_without_a_file_the_demo_agent_is_served_alone() -> None:
    assert list(registry.agents()) == ["demo"]


def test_with_a_providers_key_an_assistant_stands_beside_it() -> None:
    credentials.set_defaults({"openai-chat": "sk-own"})
    assert list(registry.agents()) == ["demo", "assistant"]


def test_a_file_takes_the_place_of_the_builtin_agents(settings: Any, tmp_path: Path) -> None:
    settings.AGENTHOST_AGENTS_FILE = tmp_path / "agents.toml"
    settings.AGENTHOST_AGENTS_FILE.write_text(BARE)
    assert list(registry.agents()) == ["a"]
    assert registry.find("demo") is None


def test_a_broken_file_is_an_error_each_time(settings: Any, tmp_path: Path) -> None:
    settings.AGENTHOST_AGENTS_FILE = tmp_path / "agents.toml"
    for _ in range(2):
        with pytest.raises(AgentsFileError):
            registry.agents()


def test_a_test_can_serve_agents_of_its_own() -> None:
    with registry.use([AgentSpec("mine", "demo:")]):
        assert list(registry.agents()) == ["mine"]
    assert list(registry.agents()) == ["demo"]
