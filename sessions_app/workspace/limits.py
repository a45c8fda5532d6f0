"""Limits of one sandbox: those the kernel checks for each process, and those the watchdog checks for all of them together."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Pinned memory and POSIX message queues are kernel memory, which no other limit counts.
LOCKED_BYTES = 64 * KIB
QUEUE_BYTES = 800 * KIB
# From SIGXCPU to SIGKILL.
CPU_GRACE_SECONDS = 5


@dataclass(frozen=True)
class Limits:
    """What the processes of one sandbox may use.

    `memory_bytes`, `processes` and `cpu_seconds` are limits of each process (RLIMIT_DATA, RLIMIT_NPROC, RLIMIT_CPU) and of the
    whole sandbox (watchdog, and cgroup where one is delegated). `processes` counts threads. `file_bytes` is the size of one file,
    `disk_bytes` and `disk_files` those of the workspace's tree; `temporary_bytes` and `temporary_files` those of /tmp, which is
    memory; /dev/shm has the same limit of files. `lifetime_seconds` is wall time.
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


def rlimit_options(limits: Limits) -> list[str]:
    """Options of prlimit(1). RLIMIT_NPROC is not among them: outside the box it would count the processes of all boxes.

    RLIMIT_DATA and not RLIMIT_AS limits memory: V8, Go and the JVM reserve address space by the gigabyte and never use it.
    """
    return [
        f"--data={limits.memory_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        f"--cpu={limits.cpu_seconds}:{limits.cpu_seconds + CPU_GRACE_SECONDS}",
        f"--memlock={LOCKED_BYTES}",
        f"--msgqueue={QUEUE_BYTES}",
        "--core=0",
    ]


def amount(size: float) -> str:
    """A number of bytes for people: `1.5 GiB`."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,.0f} bytes"
