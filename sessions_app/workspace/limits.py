"""Limits of one sandbox: those the kernel checks for each process, and those the watchdog checks for all of them together."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True)
class Limits:
    """What the processes of one sandbox may use.

    `memory_bytes`, `processes` and `cpu_seconds` are limits of each process (RLIMIT_DATA, RLIMIT_NPROC, RLIMIT_CPU) and of the
    whole sandbox (watchdog, and cgroup where one is delegated). `file_bytes` is the size of one file, `disk_bytes` and `disk_files`
    those of the workspace's tree, `temporary_bytes` that of /tmp, which is memory. `lifetime_seconds` is wall time.
    """

    memory_bytes: int = 2 * GIB
    processes: int = 256
    cpu_seconds: int = 4 * 3600
    file_bytes: int = GIB
    open_files: int = 1024
    lifetime_seconds: float = 24 * 3600.0
    disk_bytes: int = GIB
    disk_files: int = 100_000
    temporary_bytes: int = 256 * MIB
    temporary_files: int = 50_000
