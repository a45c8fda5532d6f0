"""Line numbers and hints in the faults of an agents file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_app import loader
from agents_app.errors import AgentsFileError
from agents_app.loader.lines import Lines

FILE = '''# an agents file
[[agents]]
name = "first"
model = "demo:guide"
instructions = """
[[agents]]
colour = 1
"""

[[agents]]
name = "second"
modle = "demo:guide"
[agents.workspace]
sise = "1"
[[agents.options]]
type = "text"
name = "tone"
[[agents.options]]
typ = "text"
name = "units"
'''


def test_lines_are_found_in_tables_lists_and_behind_long_texts() -> None:
    lines = Lines(FILE)
    assert lines.of("agents[0]", "name") == 3
    assert lines.of("agents[0]", "colour") == 2
    assert lines.of("agents[1]", "modle") == 12
    assert lines.of("agents[1].workspace", "sise") == 14
    assert lines.of("agents[1].options[0]", "name") == 17
    assert lines.of("agents[1].options[1]", "typ") == 19
    assert lines.of("agents[1].options[1]", "missing") == 18
    assert lines.of("agents[2]", "name") is None
    assert Lines('[[agents]]\noptions = [{ typ = "text" }]').of("agents[0].options[0]", "typ") == 2


def test_each_fault_has_its_line_and_the_key_that_was_probably_meant(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(FILE)
    with pytest.raises(AgentsFileError) as failed:
        loader.load(path)
    found = {(fault.line, fault.key): fault.reason for fault in failed.value.faults}
    assert found[12, "modle"] == "unknown key; did you mean model?"
    assert found[19, "typ"] == "unknown key; did you mean type?"
    assert found[10, "model"] == "is required"
    assert "line 12: agents[1] (second) modle: unknown key" in str(failed.value)


def test_an_unknown_key_like_none_that_is_known_gets_no_hint(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = "demo:guide"\ncolour = 1\n')
    with pytest.raises(AgentsFileError) as failed:
        loader.load(path)
    assert [(fault.line, str(fault)) for fault in failed.value.faults] == [(4, "agents[0] (a) colour: unknown key")]
