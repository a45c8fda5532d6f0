"""One embedded server at a time uses a data directory: a second one would receive its events only by polling."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

from django.core.exceptions import ImproperlyConfigured

_FILE = "server.lock"


def lock(directory: Path, port: int) -> TextIO:
    """Lock the directory until the returned file is closed, at the latest when the process ends. Raises if it is locked."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (directory / _FILE).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            holder = file.read(100).strip() or "another process"
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: a server ({holder}) already uses {directory}. Stop it first, or choose another directory."
        ) from None
    file.truncate(0)
    file.write(f"process {os.getpid()}, port {port}\n")
    file.flush()
    return file
