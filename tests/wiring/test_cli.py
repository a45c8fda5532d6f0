"""The program ``agenthost`` of an installed package: what it offers, and what it does not."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from django.core.management import get_commands

from agenthost import cli
from agenthost.cli import examples
from agenthost.cli.catalogue import ALIASES, COMMANDS, GROUPS, Kind
from agenthost.env import ROLES
from agents_app import installation
from tests.paths import ROOT

OF_LIBRARIES = {
    "axes_reset",
    "axes_reset_ip",
    "axes_reset_username",
    "changepassword",
    "check",
    "createsuperuser",
    "showmigrations",
}
"""All that operators need of the commands that the project does not define itself."""
NOT_OFFERED = {"runserver", "migrate"}
"""Own commands that are for development, or whose role is offered: `manage.py migrate` also goes backwards."""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agenthost", *arguments],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_command_of_the_project_is_offered_and_of_others_only_the_listed_ones() -> None:
    own = {name for name, app in get_commands().items() if app in ("agenthost", "sessions_app")} - NOT_OFFERED
    offered = {name.replace("-", "_") for name, command in COMMANDS.items() if command.kind is Kind.MANAGEMENT}
    assert offered == own | OF_LIBRARIES
    assert {name for name, command in COMMANDS.items() if command.kind is Kind.ROLE} == set(ROLES)
    assert not COMMANDS.keys() & {"flush", "shell", "dbshell", "loaddata", "dumpdata", "sqlflush", "testserver", "migrate-back"}


@pytest.mark.parametrize("name", ["flush", "shell", "dbshell", "loaddata", "sqlflush", "testserver", "runserver"])
def test_commands_of_django_that_are_not_listed_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name]) == 2
    assert f"there is no command '{name}'." in capsys.readouterr().err


def test_the_help_has_one_line_for_each_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ([], ["help"], ["--help"]):
        assert cli.main(asked) == 0
        shown = capsys.readouterr().out
        assert re.findall(r"^  (\S+)  ", shown, re.MULTILINE) == list(COMMANDS)
        assert [line for line in shown.splitlines()[1:] if line and line[0] != " "][:-1] == list(GROUPS)
        assert max(map(len, shown.splitlines())) <= 120


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("create_kye", "create-key"), ("lst-keys", "list-keys"), ("docter", "doctor"), ("WEB", "web"), ("xyzzy", None)],
)
def test_an_unknown_command_names_the_one_that_was_meant(
    typed: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([typed]) == 2
    hint = f" Did you mean {meant}?" if meant else ""
    assert capsys.readouterr().err == f"agenthost: there is no command '{typed}'.{hint} agenthost help lists all commands.\n"


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    shown = capsys.readouterr().out
    assert re.fullmatch(r"agenthost \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+\)\n", shown)
    assert f'version = "{installation.version()}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["list-keys", "list_keys", "keys"])
def test_management_commands_run_with_hyphens_underscores_and_aliases(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage: agenthost list_keys" in done.stdout


def test_a_role_is_the_same_process_as_that_of_the_entrypoint() -> None:
    done = run("web", "--processes", "none")
    assert done.returncode == 2
    assert "ROLE is one of web, worker" in done.stderr


def test_help_and_version_load_nothing_of_the_server() -> None:
    code = "import sys; from agenthost import cli; cli.main(['help']); print('django' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"


def test_the_health_check_reports_as_that_of_the_entrypoint(tmp_path: Path) -> None:
    done = run("healthy", "terminals", AGENTHOST_VAR_DIR=str(tmp_path))
    assert (done.returncode, "no terminal service has reported" in done.stdout) == (1, True)


@pytest.mark.parametrize("name", sorted(examples.FILES))
def test_an_example_is_printed_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["example", name]) == 0
    assert capsys.readouterr().out == (ROOT / examples.FILES[name]).read_text()


@pytest.mark.parametrize("name", sorted(examples.FOLDERS))
def test_an_example_of_several_files_is_written_whole_and_overwrites_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["example", name, "--to", str(tmp_path / "new")]) == 0
    listed = {Path(line).relative_to(tmp_path / "new") for line in capsys.readouterr().out.splitlines()}
    top = ROOT / examples.FOLDERS[name]
    # other_kinds.json has the schemas of the project's own check.
    assert listed == {each.relative_to(top) for each in top.rglob("*") if each.is_file()} - {Path("other_kinds.json")}
    for each in listed:
        assert (tmp_path / "new" / each).read_text() == (top / each).read_text()
    changed = tmp_path / "new" / min(listed)
    changed.write_text("mine")
    with pytest.raises(SystemExit):
        cli.main(["example", name, "--to", str(tmp_path / "new")])
    assert f"{changed} exists; nothing was written" in capsys.readouterr().err
    assert changed.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["systemd"], "systemd has 8 files: name a directory"), (["nginx", "--to", "x"], "nginx is one file, which is printed")],
)
def test_one_file_is_printed_and_several_are_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["example", *arguments])
    assert message in capsys.readouterr().err


def test_a_package_has_the_files_of_all_examples() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared: dict[str, list[str]] = project["tool"]["setuptools"]["data-files"]
    folders = {each.relative_to(ROOT).as_posix() for name in examples.FOLDERS for each in examples.files(name).values()}
    assert sorted(itertools.chain.from_iterable(shared.values())) == sorted({*examples.FILES.values(), *folders})
    for directory, files in shared.items():
        ending = directory.removeprefix("share/agenthost").removeprefix("/")
        assert {Path(file).parent for file in files} == {Path("ops") / ending}


def test_the_units_of_a_package_start_its_own_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    units = examples.files("systemd")
    monkeypatch.setattr(installation, "IS_CHECKOUT", False)
    monkeypatch.setattr(examples, "files", lambda _: units)
    written = {path.name: path.read_text() for path in examples.write("systemd", tmp_path)}
    started = {line for text in written.values() for line in text.splitlines() if line.startswith("ExecStart=")}
    assert started == {f"ExecStart=/opt/agenthost/bin/agenthost {role}" for role in ("migrate", "terminals", "web", "worker")}
    assert not any("ops/entrypoint" in text for text in written.values())


def test_aliases_lead_to_commands() -> None:
    assert set(ALIASES.values()) <= COMMANDS.keys()
    assert not ALIASES.keys() & COMMANDS.keys()


# --- how messages write commands, and where data is ---


def test_messages_of_a_package_name_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation.role("worker") == "ops/entrypoint worker"
    monkeypatch.setattr(installation, "IS_CHECKOUT", False)
    assert installation.manage("create_key acme --name x_y") == "agenthost create-key acme --name x_y"
    assert (installation.role("worker"), installation.start()) == ("agenthost worker", "agenthost up")


def test_the_data_of_a_package_is_in_the_users_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert installation.data_directory() == ROOT / "var"
    monkeypatch.setattr(installation, "IS_CHECKOUT", False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert installation.data_directory() == tmp_path / ".local/share/agenthost"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert installation.data_directory() == tmp_path / ".local/share/agenthost"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert installation.data_directory() == tmp_path / "data/agenthost"
