"""docs/settings.md lists the variables that the settings read."""

from __future__ import annotations

import re

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "settings.md").read_text()


def variables() -> set[str]:
    files = ("settings.py", "tracing/configuration.py")
    settings = "".join((ROOT / "agenthost" / name).read_text() for name in files)
    return {match[1] for match in re.finditer(r"env\.\w+\(\s*\"([A-Z_]+)\"", settings)}


def test_every_variable_that_the_settings_read_is_on_the_page() -> None:
    assert variables()
    assert {name for name in variables() if f"- `{name}`" not in PAGE} == set()


def test_the_page_names_no_variable_that_nothing_reads() -> None:
    named = {match[1] for match in re.finditer(r"^- `([A-Z_]+)` \(", PAGE, re.MULTILINE)}
    assert named - variables() == set()


def test_every_variable_has_its_default() -> None:
    lines = re.findall(r"^- `AGENTHOST_\w+`(.*)", PAGE.partition("## Default limits of tenants")[0], re.MULTILINE)
    assert lines
    assert [line for line in lines if not line.startswith(" (")] == []
