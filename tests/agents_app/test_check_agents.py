"""The command ``check_agents``."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.agents_app.test_loader import BARE, ISSUE


def test_a_good_file_gets_one_ok_per_agent(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(ISSUE + BARE)
    out = StringIO()
    call_command("check_agents", str(path), stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["research-agent", "a"]
    assert all("OK" in line for line in lines)
    assert "sk-default" not in out.getvalue()


def test_a_bad_file_gets_every_fault_and_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(BARE + "colour = 1\nmax_steps = 0")
    err = StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("check_agents", str(path), stderr=err)
    assert caught.value.code == 1
    assert "agents[0] (a) colour: unknown key" in err.getvalue()
    assert "agents[0] (a) max_steps: must be at least 1" in err.getvalue()
