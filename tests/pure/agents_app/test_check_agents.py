"""The command ``check_agents``."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings

from tests.pure.agents_app.test_loader import BARE, ISSUE


def told(path: Path, text: str) -> list[str]:
    path.write_text(text)
    out = StringIO()
    call_command("check_agents", str(path), stdout=out)
    return out.getvalue().splitlines()


def test_a_good_file_gets_one_ok_per_agent_and_what_became_of_it(tmp_path: Path) -> None:
    lines = told(tmp_path / "agents.toml", ISSUE + BARE)
    assert lines == [
        "research-agent 1.2.0: OK",
        "  model    openai-chat:{model} at http://127.0.0.1:9999/v1",
        "  option   model: one of gpt-test, gpt-other; at first gpt-test",
        "  option   provider_key: a secret; with a default",
        "  option   language: text; at first 'English'",
        "  tool     order_rope (tests.fakes.tools:order_rope, 30 s, may be run again)",
        "  tool     calculator (builtin calculator, may be run again, not shown to clients)",
        "  tools    clients may bring tools",
        "  images   http, data",
        "  context  8,000 tokens, then older turns are left out",
        "a 0.0.0: OK",
        "  model    openai-chat:m",
        "  warning: there is no key for openai-chat: neither api_key here nor OPENAI_API_KEY in the environment of this command",
        "  warning: context_tokens is not set: a conversation that outgrows the model's own limit ends with max_tokens",
    ]


def test_what_may_surprise_an_author_is_a_warning(tmp_path: Path) -> None:
    text = (
        '[[agents]]\nname = "b"\nmodel = "openai-chat:m"\napi_key = "k"\ncompaction = "summarise"\n'
        '[[agents.options]]\ntype = "text"\nname = "tone"\n'
        '[[agents.tools]]\nbuiltin = "calculator"\nname = "mute"\ndescription = ""\n'
    )
    assert [line for line in told(tmp_path / "agents.toml", text) if "warning" in line] == [
        "  warning: nothing is ever summarised: context_tokens is not set",
        "  warning: the tool mute has no description: a model can only guess what it is for",
        "  warning: the option tone is used nowhere: write {tone} where its value belongs",
    ]


def test_the_queue_of_an_agent_is_shown(tmp_path: Path) -> None:
    lines = told(tmp_path / "agents.toml", '[[agents]]\nname = "d"\nmodel = "demo:guide"\nqueue = "heavy"\n')
    assert "  queue    heavy: only workers that serve it run its turns" in lines


def test_an_agent_in_python_shows_where_it_stands(tmp_path: Path) -> None:
    lines = told(tmp_path / "agents.toml", '[[agents]]\nname = "c"\npython = "tests.fakes.python_agents:Counter"')
    assert lines[1:3] == ["  python   tests.fakes.python_agents:Counter", "  model    python:tests.fakes.python_agents:Counter"]
    assert not [line for line in lines if "warning" in line]


def test_a_bad_file_gets_every_fault_and_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text(BARE + "colour = 1\nmax_steps = 0")
    err = StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("check_agents", str(path), stderr=err)
    assert caught.value.code == 1
    assert "agents[0] (a) colour: unknown key" in err.getvalue()
    assert "agents[0] (a) max_steps: must be at least 1" in err.getvalue()


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    err = StringIO()
    with pytest.raises(SystemExit):
        call_command("check_agents", str(tmp_path / "nope.toml"), stderr=err)
    assert err.getvalue() == f"{tmp_path / 'nope.toml'}: file: No such file or directory\n"


def test_a_template_is_shown_and_one_over_the_limits_is_a_fault(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("text")
    text = BARE + '[agents.workspace]\ntemplate = "files"\n'
    assert f"  files    new workspaces begin with {tmp_path / 'files'}" in told(tmp_path / "agents.toml", text)
    settings.AGENTHOST_WORKSPACE_BYTES = 3
    err = StringIO()
    with pytest.raises(SystemExit):
        call_command("check_agents", str(tmp_path / "agents.toml"), stderr=err)
    assert "agents.workspace of a template: " in err.getvalue()
    assert "more than 3 bytes" in err.getvalue()
