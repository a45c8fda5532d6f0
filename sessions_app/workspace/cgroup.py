"""One cgroup v2 for one sandbox, where a directory is delegated to this process.

The kernel then limits memory, processes and CPU of all processes of a box together, files of /tmp included. Each controller is
used if it is delegated.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from sessions_app.workspace.limits import Limits

# CPU of one box: this many microseconds of each period, two processors' worth.
CPU_QUOTA = 200_000
CPU_PERIOD = 100_000


class Cgroup:
    """A child of the delegated directory. Raises OSError if it cannot be made there."""

    def __init__(self, delegated: Path, limits: Limits) -> None:
        self.path = delegated / f"box-{secrets.token_hex(8)}"
        self.path.mkdir()
        for name, value in (
            ("memory.max", str(limits.memory_bytes + limits.temporary_bytes)),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", str(limits.processes + 4)),
            ("cpu.max", f"{CPU_QUOTA} {CPU_PERIOD}"),
        ):
            # A controller that is not delegated has no file; files cannot be made in a cgroup.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                self._write(name, value)

    def _write(self, name: str, value: str) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def add(self, pid: int) -> None:
        self._write("cgroup.procs", str(pid))

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._write("cgroup.kill", "1")

    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it for its memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.rmdir()
