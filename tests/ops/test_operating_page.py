"""The operator's page against the settings."""

from __future__ import annotations

import re

from tests.paths import ROOT


def variables() -> set[str]:
    settings = (ROOT / "agenthost" / "settings.py").read_text()
    return {match[1] for match in re.finditer(r"env\.\w+\(\s*\"([A-Z_]+)\"", settings)}


def test_every_variable_that_the_settings_read_is_on_the_operators_page() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    assert variables()
    assert {name for name in variables() if f"`{name}`" not in page} == set()


def test_the_page_names_no_variable_that_nothing_reads() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    named = {match[1] for match in re.finditer(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)}
    assert named - variables() == set()
