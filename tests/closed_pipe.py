"""Runs programs whose stdout is closed, as with `| head -1`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run ``command`` with a stdout pipe whose reader is already closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        return subprocess.run(
            command, env=environment, cwd=directory, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=120
        )
