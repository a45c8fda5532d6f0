"""Whether the terminal service of this machine can run terminals, for a container's health check.

The service writes what it knows into a file after each renewal of its lease; the check reads it. It is run as a program by
`ops/entrypoint healthy terminals` or `agenthost healthy terminals`, and imports only the standard library, because it runs
every few seconds.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

FILE = "terminals.health"
STALE_SECONDS = 60.0
"""A service that has not renewed its lease for so long is not healthy."""


def write(directory: Path, fault: str) -> None:
    """Store why the service runs no terminals; empty: it does."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = directory / f"{FILE}.{os.getpid()}"
        made.write_text(fault)
        made.replace(directory / FILE)
    except OSError as error:
        log.warning("health_not_written directory=%s: %s", directory, error.strerror)


def fault_of(directory: Path, now: float) -> str:
    """Why the service is not healthy; empty if it is."""
    file = directory / FILE
    try:
        age, fault = now - file.stat().st_mtime, file.read_text()
    except OSError as error:
        return f"no terminal service has reported in {file}: {error.strerror}"
    if age > STALE_SECONDS:
        return f"the terminal service has not renewed its lease for {age:.0f} s"
    return fault and f"no terminals: {fault}"


def main(arguments: Sequence[str], default: Path | None) -> int:
    """``default`` is the data directory without AGENTHOST_VAR_DIR."""
    if list(arguments) != ["terminals"]:
        sys.stderr.write("healthy: the role is terminals; a web answers /readyz, other roles have no check\n")
        return 2
    given = os.environ.get("AGENTHOST_VAR_DIR")
    directory = Path(given) if given else default
    fault = fault_of(directory, time.time()) if directory is not None else "AGENTHOST_VAR_DIR is not set"
    sys.stdout.write(f"{fault or 'healthy'}\n")
    return 1 if fault else 0


if __name__ == "__main__":
    # Of a checkout; nothing of the server is imported here.
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent.parent / "var"))
