"""Memory of all sandboxes of a host together: how much each takes, and which is ended when it is too much.

Every process that runs sandboxes publishes what they take in a small file that the others read. All decide by the same figures:
of the group (a tenant) that takes most, the largest sandbox is ended, by the process that runs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sessions_app.workspace.limits import MIB, amount

SETTING = "AGENTHOST_SANDBOX_TOTAL_MEMORY_BYTES"
DEFAULT_SHARE = 0.5
# With less available memory than this, the largest sandbox is ended even below the limit.
SCARCE_BYTES = 512 * MIB
SCARCE_SHARE = 1 / 16
# A smaller sandbox is not ended for it: that would free nothing.
LEAST_BYTES = 32 * MIB
# What a process published is not believed for longer, and an end is not waited for longer.
PATIENCE_SECONDS = 10.0

DIRECTORY = Path(tempfile.gettempdir()) / f"agenthost-sandboxes-{os.geteuid()}"
_budget: int | None = None


def set_budget(total_bytes: int | None) -> None:
    """For all sandboxes of the host together; None: half of its memory. Called at the start of a process."""
    global _budget
    _budget = total_bytes


@dataclass(frozen=True)
class Machine:
    """Memory of the machine, or of the container's cgroup if that has less. 0: the kernel does not report it."""

    total: int
    available: int

    @property
    def budget(self) -> int:
        return int(self.total * DEFAULT_SHARE) if _budget is None else _budget

    @property
    def is_scarce(self) -> bool:
        return 0 < self.available < min(SCARCE_BYTES, self.total * SCARCE_SHARE)


def machine() -> Machine:
    return read_machine(Path("/proc/meminfo"), Path("/sys/fs/cgroup"))


def read_machine(facts: Path, cgroup: Path) -> Machine:
    total = available = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = {
            name: int(rest.split()[0]) * 1024
            for name, _, rest in (line.partition(":") for line in facts.read_text().splitlines())
        }
        total, available = lines["MemTotal"], lines["MemAvailable"]
    with contextlib.suppress(OSError, ValueError):
        most = int((cgroup / "memory.max").read_text())
        counted = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # Pages of files are given up when memory is needed.
        used = int((cgroup / "memory.current").read_text()) - int(counted.get("inactive_file", 0))
        total, available = min(total or most, most), min(available or most, max(1, most - used))
    return Machine(total, available)


def temporary_bytes(root: str, places: Iterable[str]) -> int:
    """What the temporary file systems below a box's root take: that is memory, which belongs to no process."""
    taken = 0
    for place in places:
        with contextlib.suppress(OSError):
            found = os.statvfs(f"{root}{place}")
            taken += (found.f_blocks - found.f_bfree) * found.f_frsize
    return taken


def held_bytes(processes: str) -> int:
    """Memory of the processes of a /proc that the kernel cannot give up: private and shared pages, without those of files."""
    total = 0
    for name in os.listdir(processes):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError), Path(f"{processes}/{name}/smaps_rollup").open("rb") as file:
                for line in file:
                    if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                        total += int(line.split()[1]) * 1024
    return total


@dataclass(frozen=True)
class Taken:
    """What the sandboxes of a group take in one process."""

    total: int
    largest: int


@dataclass
class Standing:
    """What one process publishes. ``exact`` None: only the upper bound is known. ``ending``: one of its boxes is being ended."""

    bound: int = 0
    exact: Mapping[str, Taken] | None = None
    ending: bool = False
    at: float = field(default_factory=time.time)

    def text(self) -> str:
        exact = None if self.exact is None else {group: [taken.total, taken.largest] for group, taken in self.exact.items()}
        return json.dumps([self.bound, exact, self.ending, self.at])

    @classmethod
    def read(cls, text: str) -> Standing:
        bound, exact, ending, at = json.loads(text)
        return cls(bound, None if exact is None else {group: Taken(*pair) for group, pair in exact.items()}, ending, at)


class Board:
    """What the processes of this host, of the same user, publish: a file for each, locked while its process lives."""

    def __init__(self) -> None:
        self._directory = DIRECTORY
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._file: int | None = None

    def publish(self, mine: Standing) -> None:
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._opened()
            # One write, and never a shorter one: a reader never finds the end of an older text after this one.
            os.pwrite(self._file, mine.text().encode().ljust(os.fstat(self._file).st_size), 0)

    def _opened(self) -> int:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found = self._directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(None, "the directory belongs to another user")
        while True:
            file = os.open(self._directory / self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file
            # Another process took it for that of a dead one, before it was locked.
            os.close(file)

    def others(self) -> list[Standing]:
        """Those of other living processes. The files of dead ones are removed."""
        with contextlib.suppress(OSError):
            found = [_of_another(path) for path in self._directory.iterdir() if path.name != self._name]
            return [standing for standing in found if standing is not None]
        return []

    def withdraw(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                (self._directory / self._name).unlink()
            os.close(self._file)
            self._file = None


def _of_another(path: Path) -> Standing | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                standing = Standing.read(os.pread(file, 1 << 20, 0).decode())
                return standing if abs(time.time() - standing.at) < PATIENCE_SECONDS else None
            path.unlink()
        finally:
            os.close(file)
    return None


def is_crowded(mine: Standing, others: Sequence[Standing], host: Machine) -> bool:
    """Whether it may be too much: then exact figures are needed."""
    return host.is_scarce or mine.bound + sum(each.bound for each in others) > host.budget


def victim(mine: Standing, others: Sequence[Standing], host: Machine) -> tuple[str, str] | None:
    """The group whose largest sandbox this process has to end, and why; None: none, or another process ends one of its own."""
    everyone = [mine, *others]
    if mine.exact is None or any(each.exact is None or each.ending for each in everyone):
        return None
    totals: dict[str, int] = {}
    for each in everyone:
        for group, taken in (each.exact or {}).items():
            totals[group] = totals.get(group, 0) + taken.total
    is_over = sum(totals.values()) > host.budget
    if not totals or not (is_over or host.is_scarce):
        return None
    group = max(totals, key=lambda name: (totals[name], name))
    own = mine.exact[group].largest if group in mine.exact else 0
    if own < LEAST_BYTES or any(group in (each.exact or {}) and (each.exact or {})[group].largest > own for each in others):
        return None
    when = f"all sandboxes of this host exceeded their limit together ({SETTING})" if is_over else "this host had no memory left"
    return group, f"memory: this sandbox took {amount(own)} when {when}"
