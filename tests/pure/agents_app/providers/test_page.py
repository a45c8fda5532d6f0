"""The page about providers against the providers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents_app import loader, providers
from agents_app.providers import anthropic, bedrock_request, google, openai_responses
from agents_app.providers.hosts import HOSTS
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below the heading."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n|---")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[1:]]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_agent_on_the_page_can_be_loaded(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text(snippet, encoding="utf-8")
    assert loader.load(tmp_path / "agents.toml")


def test_the_table_has_every_provider_with_its_address() -> None:
    told = {cells[0].strip("`"): cells[2] for cells in rows("List of providers")}
    assert sorted(told) == sorted(providers.NAMES)
    for name, host in HOSTS.items():
        assert (host.base_url or "your `base_url`") in told[name]
    for name, base in (
        ("anthropic", anthropic.BASE_URL),
        ("google", google.BASE_URL),
        ("openai-responses", openai_responses.BASE_URL),
    ):
        assert base in told[name]


def test_the_table_has_every_key() -> None:
    told = {
        name: tuple(re.findall(r"`(\w+)`", variables))
        for names, variables in rows("Keys")
        for name in re.findall(r"`([\w-]+)`", names)
    }
    assert told == dict(providers.KEY_VARIABLES)


def test_settings_that_are_for_us_alone_are_told() -> None:
    for name in (*bedrock_request.OWN_SETTINGS, "google_project", "google_location", "extra_body", "reasoning_summary"):
        assert f"`{name}`" in PAGE or f"{name} =" in PAGE
