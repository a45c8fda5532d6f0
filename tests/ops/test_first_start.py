"""What ops/quickstart does when nobody reads what it says."""

from __future__ import annotations

import sys
from pathlib import Path

from ops import clean_environment
from ops.services import free_port
from tests import closed_pipe
from tests.paths import ROOT


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`ops/quickstart | head -1`: it ends instead of starting a server whose key nobody has seen."""
    environment = {**clean_environment.inherited(), "AGENTHOST_VAR_DIR": str(tmp_path / "var")}
    done = closed_pipe.run([sys.executable, "-m", "ops.first_start", "--port", str(free_port())], environment, ROOT)
    assert done.stderr == b""
    assert done.returncode == 141
