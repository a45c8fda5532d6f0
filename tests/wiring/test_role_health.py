"""The health check of a terminal service, as a container runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agenthost import role_health
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("fault", "age", "code", "text"),
    [
        ("", 0, 0, "healthy"),
        ("bubblewrap is missing", 0, 1, "no terminals: bubblewrap is missing"),
        ("", 3_600, 1, "has not renewed its lease"),
        (None, 0, 1, "no terminal service has reported"),
    ],
)
def test_a_check_reports_what_the_service_knows(tmp_path: Path, fault: str | None, age: int, code: int, text: str) -> None:
    if fault is not None:
        role_health.write(tmp_path / "var", fault)
        file = tmp_path / "var" / role_health.FILE
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - age))
    variables = {**os.environ, "AGENTHOST_VAR_DIR": str(tmp_path / "var")}
    done = subprocess.run(
        [ROOT / "ops" / "entrypoint", "healthy", "terminals"], env=variables, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert text in done.stdout


def test_a_directory_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    role_health.write(tmp_path / "file" / "var", "")
