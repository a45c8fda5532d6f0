"""What ops/bootstrap says when it cannot make its environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_a_checkout_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    shutil.copy(ROOT / "ops" / "environment.py", tmp_path / "ops")
    # A file where the directory belongs fails for root too, whom no permission stops.
    (tmp_path / "var").touch()
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "ops" / "environment.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ops/bootstrap: {tmp_path / 'var'}: ")
    assert "run this as the owner of the checkout" in line
