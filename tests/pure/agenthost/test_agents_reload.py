"""Loading the agents again while the server runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenthost.agents_reload import Reloader
from agents_app import object_references, registry
from agents_app.tools import source

TOOL = """
[[agents.tools]]
name = "greet"
python = "reload_tools:greet"
description = "Greets"
"""


def agents(*names: str, more: str = "") -> str:
    return "".join(f'[[agents]]\nname = "{name}"\nmodel = "demo:guide"\n{more}' for name in names)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setattr(registry, "_agents", None)
    monkeypatch.setattr(object_references, "_folders", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    settings.AGENTHOST_AGENTS_FILE = tmp_path / "agents.toml"
    yield tmp_path / "agents.toml"
    sys.modules.pop("reload_tools", None)


def called(name: str) -> Any:
    [tool] = registry.agents()[name].tools
    return source.resolve(tool.source)()


def test_a_changed_file_and_changed_code_are_served_after_a_look(file: Path) -> None:
    file.write_text(agents("first", more=TOOL))
    (file.parent / "reload_tools.py").write_text("def greet() -> str:\n    return 'ahoy'\n")
    assert called("first") == "ahoy"
    reloader = Reloader(watches=True)
    assert not reloader._has_changed()
    file.write_text(agents("first", "second", more=TOOL))
    assert reloader._has_changed()
    first = registry.agents()["first"]
    reloader.reload()
    assert list(registry.agents()) == ["first", "second"]
    assert registry.agents()["first"] is first
    assert not reloader._has_changed()
    (file.parent / "reload_tools.py").write_text("def greet() -> str:\n    return 'good day'\n")
    assert reloader._has_changed()
    reloader.reload()
    assert called("first") == "good day"


@pytest.mark.parametrize("broken", ["agents = 1", "[[agents]]\nname =", agents("other").replace("model", "modle")])
def test_a_broken_file_leaves_the_agents_as_they_were_and_says_why(
    file: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file.write_text(agents("first"))
    before = registry.agents()
    reloader = Reloader(watches=True)
    file.write_text(broken)
    reloader.reload()
    assert registry.agents() is before
    assert "agents.toml" in reloader.fault
    assert "agents_not_reloaded" in caplog.text
    assert not reloader._has_changed()
    file.write_text(agents("first", "second"))
    reloader.reload()
    assert reloader.fault == ""
    assert "agents_reloaded changed=second" in caplog.text


def test_broken_code_leaves_the_earlier_code_in_use(file: Path) -> None:
    file.write_text(agents("first", more=TOOL))
    code = file.parent / "reload_tools.py"
    code.write_text("def greet() -> str:\n    return 'ahoy'\n")
    assert called("first") == "ahoy"
    for broken in ("def greet(:\n", "raise RuntimeError('secret words')\n", "def other() -> None: ...\n"):
        code.write_text(broken)
        reloader = Reloader(watches=True)
        reloader.reload()
        assert reloader.fault
        assert "secret words" not in reloader.fault
        assert called("first") == "ahoy"
