"""CPU, memory and context switches of processes and their threads, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
# A process or thread may end while its files are read.
_ENDED = (FileNotFoundError, ProcessLookupError)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread's costs until now. The CPU time has the resolution of the scheduler, nanoseconds."""

    pid: int
    name: str
    cpu_seconds: float
    waits: int
    """Voluntary context switches: the thread had nothing to do."""
    preemptions: int
    """Involuntary context switches: the scheduler gave the CPU to another thread."""


def available() -> bool:
    return (_PROC / "self" / "stat").exists()


def _fields(pid: int) -> list[str]:
    # The name in parentheses may contain blanks and parentheses.
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int(_fields(int(entry.name))[1]), []).append(int(entry.name))
            except _ENDED:
                continue
    found = list(roots)
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int], *, alone: bool = False) -> float:
    """CPU time of the processes and their descendants until now, with children that have ended; ``alone``: without all these."""
    total = 0
    for pid in roots if alone else tree(roots):
        try:
            total += sum(int(value) for value in _fields(pid)[11 : 13 if alone else 15])
        except _ENDED:
            continue
    return total / _TICKS


def pss_mib(roots: Iterable[int], *, alone: bool = False) -> float:
    """Proportional set size among these processes and their descendants (not with ``alone``), as if no other process ran.

    A page that several of them share counts once. A file's page that another program has loaded too counts in full: a second
    server on the machine, which has the same libraries loaded, would otherwise make this one look smaller.
    """
    kib = 0
    files: dict[tuple[str, ...], int] = {}
    for pid in roots if alone else tree(roots):
        try:
            rollup = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            mappings = (_PROC / str(pid) / "smaps").read_text().splitlines()
        except (*_ENDED, PermissionError):
            continue
        kib += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss_Anon:"))
        for mapping, of_file in _of_files(mappings):
            files[mapping] = max(of_file, files.get(mapping, 0))
    return (kib + sum(files.values())) / 1024


def _of_files(mappings: Iterable[str]) -> Iterator[tuple[tuple[str, ...], int]]:
    """KiB of files and shared memory that each mapping in /proc/PID/smaps has loaded, by permissions, offset, device, inode."""
    mapping: tuple[str, ...] | None = None
    resident = 0
    for line in mappings:
        name, *values = line.split()
        if "-" in name:
            mapping, resident = (values[0], *values[1:4]), 0
        elif name == "Rss:":
            resident = int(values[0])
        elif name == "Anonymous:" and mapping is not None and mapping[3] != "0":
            yield mapping, resident - int(values[0])


def threads(roots: Iterable[int]) -> dict[int, Thread]:
    """The threads of the processes and their descendants, by thread id."""
    return {number: thread for pid in tree(roots) for number, thread in _threads_of(pid)}


def _threads_of(pid: int) -> Iterator[tuple[int, Thread]]:
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
    except _ENDED:
        return
    for task in tasks:
        try:
            name = (task / "comm").read_text().rstrip("\n")
            status = (task / "status").read_text()
            ran = int((task / "schedstat").read_text().split()[0]) / 1e9
        except _ENDED:
            continue
        counts = dict(line.split(":\t", 1) for line in status.splitlines() if "ctxt_switches" in line)
        waits, preemptions = int(counts["voluntary_ctxt_switches"]), int(counts["nonvoluntary_ctxt_switches"])
        yield int(task.name), Thread(pid, name, ran, waits, preemptions)


def switches(roots: Iterable[int]) -> int:
    """Context switches of all threads until now. A thread that ends takes its own with it."""
    return sum(thread.waits + thread.preemptions for thread in threads(roots).values())
