"""What ops/quickstart does when nobody reads what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ops import surroundings
from ops.services import free_port

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`ops/quickstart | head -1`: it ends instead of starting a server whose key nobody has seen."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "ops.first_start", "--port", str(free_port())],
            env={**surroundings.inherited(), "AGENTHOST_VAR_DIR": str(tmp_path / "var")},
            cwd=ROOT,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            timeout=120,
        )
    assert done.stderr == b""
    assert done.returncode == 141
