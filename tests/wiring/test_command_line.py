"""manage.py reports errors that an operator can fix in one line, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.services import free_port
from tests import closed_pipe
from tests.paths import ROOT
from tests.wiring.test_processes import SECRETS, environment


def manage(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    return subprocess.run(
        command, env=environment(directory, **variables), cwd=directory, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("command", ["list_keys", pytest.param("migrate", marks=pytest.mark.slow)])
def test_an_unreachable_postgres_is_reported_in_one_line_without_its_password(tmp_path: Path, command: str) -> None:
    port = free_port()
    done = manage(tmp_path, command, DATABASE_URL=f"postgres://user:hush-hush@127.0.0.1:{port}/agenthost", **SECRETS)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"DATABASE_URL: the database at 127.0.0.1:{port} cannot be used" in line
    assert "hush-hush" not in line


def test_a_command_on_a_database_that_was_never_migrated_names_the_fix(tmp_path: Path) -> None:
    done = manage(tmp_path, "list_keys")
    assert done.returncode == 1
    assert done.stderr == "agenthost: The database was never migrated. Run: ops/entrypoint migrate\n"


def test_a_data_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for given in ({}, SECRETS):
        done = manage(tmp_path, "list_keys", **given, AGENTHOST_VAR_DIR=str(tmp_path / "file" / "var"))
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"agenthost: AGENTHOST_VAR_DIR: {tmp_path / 'file' / 'var'} cannot be created: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_that_is_not_writable_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir(mode=0o500)
    done = manage(tmp_path, "list_keys")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_stdout_is_not_an_error(tmp_path: Path) -> None:
    """`manage.py … | head -1`: the pipe is closed before the command writes."""
    done = closed_pipe.run([sys.executable, str(ROOT / "manage.py"), "help"], environment(tmp_path), tmp_path)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.slow
def test_runserver_refuses_what_every_role_refuses(tmp_path: Path) -> None:
    assert manage(tmp_path, "migrate").returncode == 0
    done = manage(tmp_path, "runserver", "--noreload", AGENTHOST_SECRET_KEY="another")
    assert done.returncode == 1
    assert "AGENTHOST_SECRET_KEY is not the one that this database was used with." in done.stderr
    assert "Traceback" not in done.stderr
