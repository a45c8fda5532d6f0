"""What is imported for a process's agents before it serves."""

from __future__ import annotations

import importlib

import pytest

from agents_app import preloading, providers, registry
from agents_app.spec import AgentSpec, McpSpec, OptionSpec, SummarySpec, ToolSpec

FETCHES = AgentSpec("fetches", "demo:", tools=(ToolSpec("fetch_url", "builtin:fetch_url"),))
WITH_SERVER = AgentSpec("with-server", "demo:", mcp=(McpSpec("files", "https://files.example"),))
CHOICE = OptionSpec("select", "vendor", options=("groq", "mistral"), default="groq")
CHOOSES = AgentSpec("chooses", "{vendor}:m", options=(CHOICE,), summary=SummarySpec(model="anthropic:m"))
PLAIN = AgentSpec("plain", "demo:")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules and providers that are loaded."""
    names: list[str] = []
    monkeypatch.setattr(importlib, "import_module", names.append)
    monkeypatch.setattr(providers, "find", names.append)
    return names


@pytest.mark.parametrize(
    ("agent", "for_runs", "for_others"),
    [
        (PLAIN, ["demo"], []),
        (FETCHES, ["agents_app.outbound.connector", "demo"], []),
        (WITH_SERVER, ["agents_app.mcp.connection", "demo"], ["agents_app.mcp.connection"]),
        (CHOOSES, ["anthropic", "groq", "mistral"], []),
    ],
)
def test_what_an_agent_needs_is_loaded(loaded: list[str], agent: AgentSpec, for_runs: list[str], for_others: list[str]) -> None:
    with registry.use([agent]):
        preloading.load(runs=True)
        assert sorted(loaded) == for_runs
        loaded.clear()
        preloading.load(runs=False)
        assert loaded == for_others
