"""Ends sandboxes that exceed a limit in total, which rlimits of single processes do not hold.

One watchdog per event loop looks at all of its boxes, in a thread: at a busy one twice a second, at an idle one every eight
seconds. What a box does between two looks is limited by its rlimits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from sessions_app.workspace import disk_use, memory
from sessions_app.workspace.limits import GIB, MIB, amount
from sessions_app.workspace.sandbox import Box

BUSY_SECONDS = 0.5
IDLE_SECONDS = 8.0
# Less CPU than this share of the time since the last look is idle.
IDLE_SHARE = 0.01
# A tree is measured at least this often while its box is busy, and when its volume has lost this share of the limit.
DISK_SECONDS = 60.0
DISK_SHARE = 1 / 16
# Measuring takes at most this share of the time.
MEASURING_SHARE = 0.1
# With less room than this on the volume, the box that took most of it is ended.
LEAST_FREE_BYTES = GIB
LEAST_FREE_SHARE = 0.02
# Boxes are looked at at once when the machine's available memory has fallen by this much since the last moment: an idle box can
# have begun to fill it.
MEMORY_STEP_BYTES = 256 * MIB
# What the kernel may keep for one socket: a full buffer of the size by default, and one packet. It is in no process' memory.
SOCKET_BYTES = MIB // 2
# Threads that a box may have beyond its limit: bubblewrap's own, and those between two looks.
_SPARE_PROCESSES = 8
_TEMPORARY = ("/tmp", "/dev/shm")  # noqa: S108
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Its own: the loop's threads may all be waiting for a database.
_thread = ThreadPoolExecutor(1, thread_name_prefix="watchdog")


@dataclass(frozen=True)
class Use:
    """What the processes of a box use at one moment."""

    resident_bytes: int
    cpu_seconds: float
    processes: int
    threads: int


@dataclass(eq=False)
class Watched:
    """A box under the watchdog's eyes, until `stop`."""

    box: Box
    init: int
    kill: Callable[[str], None]
    dog: Watchdog
    began: float
    due: float
    interval: float = BUSY_SECONDS
    cpu_seconds: float = 0.0
    looked: float = 0.0
    measured: float = 0.0
    measuring_seconds: float = 0.0
    # What the tree had when it was first measured: a full workspace can still be opened, to make room in it.
    first_use: disk_use.DiskUse | None = None
    taken: int = 0
    free_before: int | None = None
    busy: bool = True
    # At most so much memory, files of /tmp and /dev/shm included; what it was measured to be.
    most_bytes: int = 0
    held_bytes: int = 0
    # When it was ended: its processes may take a moment to be gone.
    ended_at: float | None = None
    _stopped: bool = field(default=False)

    def awake(self) -> None:
        """Input has come: look soon."""
        if self.interval > BUSY_SECONDS:
            self.interval = BUSY_SECONDS
            self.due = min(self.due, time.monotonic() + BUSY_SECONDS)

    def stop(self) -> None:
        self._stopped = True
        self.dog.forget(self)

    def end(self, reason: str) -> None:
        self.ended_at = time.monotonic()
        self.kill(reason)

    @property
    def temporary_bytes(self) -> int:
        places = [place for place in _TEMPORARY if place != self.box.mounted_at]
        return memory.temporary_bytes(seen_from_outside(self.init), places)

    @property
    def processes(self) -> str:
        """The /proc of the box: it has exactly its processes."""
        return f"{seen_from_outside(self.init)}/proc"


def seen_from_outside(init: int) -> str:
    """The root directory of the box whose init has this pid."""
    return f"/proc/{init}/root"


def use_of(processes: str) -> Use:
    """Adds up the processes of a /proc. Raises OSError if the box has ended."""
    resident = count = threads = ticks = 0
    for name in os.listdir(processes):  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            pages = _read(f"{processes}/{name}/statm").split()
            fields = _read(f"{processes}/{name}/stat").rpartition(b")")[2].split()
        except OSError:
            continue
        count += 1
        resident += int(pages[1])
        threads += int(fields[17])
        # Its own and those of children it has waited for.
        ticks += sum(int(value) for value in fields[11:15])
    return Use(resident * _PAGE, ticks / _TICKS, count, threads)


def proportional_bytes(processes: str) -> int:
    """Memory with each shared page counted once. Slower than `use_of`."""
    total = 0
    for name in os.listdir(processes):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                for line in _read(f"{processes}/{name}/smaps_rollup").splitlines():
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
    return total


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def excess(watched: Watched, now: float) -> str | None:
    """Looks at a box. Returns the limit that it exceeds, in one sentence, or None."""
    limits = watched.box.limits
    if now - watched.began >= limits.lifetime_seconds:
        return f"lifetime: the limit of {limits.lifetime_seconds:,.0f} s is over"
    try:
        use = use_of(watched.processes)
    except OSError:
        return None
    # A process whose parent ignores its end takes its CPU time with it: the total never goes down.
    spent = use.cpu_seconds - watched.cpu_seconds
    watched.cpu_seconds = max(watched.cpu_seconds, use.cpu_seconds)
    watched.busy = spent > IDLE_SHARE * (now - watched.looked) or watched.looked == watched.began
    watched.looked = now
    watched.most_bytes = use.resident_bytes + watched.temporary_bytes
    if watched.cpu_seconds > limits.cpu_seconds:
        return f"CPU: {watched.cpu_seconds:,.0f} s used; the limit is {limits.cpu_seconds:,} s"
    if use.threads > limits.processes + _SPARE_PROCESSES:
        return f"processes: {use.threads:,} with threads; the limit is {limits.processes:,}"
    if use.resident_bytes > limits.memory_bytes and (held := proportional_bytes(watched.processes)) > limits.memory_bytes:
        return f"memory: {amount(held)} used by {use.processes:,} processes; the limit is {amount(limits.memory_bytes)}"
    most_sockets = limits.memory_bytes // SOCKET_BYTES
    if not watched.box.machine_network and (sockets := sockets_of(watched.init)) > most_sockets:
        return f"sockets: {sockets:,} open; the limit is {most_sockets:,}, one for each {amount(SOCKET_BYTES)} of memory"
    # A file takes memory even if it is empty, and the sizes of /tmp and /dev/shm do not count that.
    for place in _TEMPORARY:
        if watched.box.mounted_at == place:
            continue
        with contextlib.suppress(OSError):
            temporary = os.statvfs(f"{seen_from_outside(watched.init)}{place}")
            if (files := temporary.f_files - temporary.f_ffree) > limits.temporary_files:
                return f"temporary files: {files:,} in {place}; the limit is {limits.temporary_files:,}"
    return None


def sockets_of(init: int) -> int:
    """The open sockets of the box's network namespace; 0 if it has ended."""
    try:
        return int(_read(f"/proc/{init}/net/sockstat").split()[2])
    except (OSError, ValueError, IndexError):
        return 0


def measure(watched: Watched, free: int) -> str | None:
    """Measures what a box has on disk. Returns the limit that it exceeds, in one sentence, or None."""
    limits = watched.box.limits
    began = time.monotonic()
    try:
        use = disk_use.of_tree(
            watched.box.tree, most_files=max(limits.disk_files, watched.first_use.files if watched.first_use else 0)
        )
        deleted = disk_use.of_deleted_files(Path(watched.processes), watched.box.tree.stat().st_dev)
    except OSError:
        return None
    watched.measured = time.monotonic()
    watched.measuring_seconds = watched.measured - began
    watched.free_before = free
    if watched.first_use is None:
        watched.first_use = use
    watched.taken = use.bytes - watched.first_use.bytes + deleted
    if use.bytes + deleted > max(limits.disk_bytes, watched.first_use.bytes):
        return f"disk: the workspace takes {amount(use.bytes + deleted)}; the limit is {amount(limits.disk_bytes)}"
    if use.files > max(limits.disk_files, watched.first_use.files):
        return f"disk: the workspace has {use.files:,} files or more; the limit is {limits.disk_files:,}"
    return None


class Watchdog:
    def __init__(self) -> None:
        self._boxes: set[Watched] = set()
        self._task: asyncio.Task[None] | None = None
        self._board = memory.Board()
        # When the exact figures were read, and how long that took.
        self._exact_at, self._exact_seconds = float("-inf"), 0.0

    def watch(self, box: Box, init: int, kill: Callable[[str], None]) -> Watched:
        """Watches the box whose init has the pid `init`. `kill` is called on the loop, with the reason."""
        now = time.monotonic()
        watched = Watched(box, init, kill, self, now, now, looked=now)
        self._boxes.add(watched)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return watched

    def forget(self, watched: Watched) -> None:
        self._boxes.discard(watched)
        if not self._boxes and self._task is not None:
            self._task.cancel()
            self._task = None
            _thread.submit(self._board.withdraw)

    async def _run(self) -> None:
        available = 0
        while True:
            now = time.monotonic()
            host = memory.machine()
            before, available = available, host.available
            falls = before - available >= MEMORY_STEP_BYTES
            due = [watched for watched in self._boxes if falls or host.is_scarce or watched.due <= now]
            if due:
                looking = asyncio.get_running_loop().run_in_executor(_thread, self._look, due, set(self._boxes), host, now)
                for watched, reason in await looking:
                    if watched in self._boxes:
                        watched.end(reason)
            await asyncio.sleep(BUSY_SECONDS)

    def _look(
        self, due: Iterable[Watched], boxes: Iterable[Watched], host: memory.Machine, now: float
    ) -> list[tuple[Watched, str]]:
        """Looks at the boxes that are due, and at the memory of all. Runs in a thread."""
        found = _looked(due, now)
        return found or self._too_much_together(boxes, host, now)

    def _too_much_together(self, boxes: Iterable[Watched], host: memory.Machine, now: float) -> list[tuple[Watched, str]]:
        """The box that has to be ended because all boxes of this host take too much memory."""
        live = [watched for watched in boxes if watched.ended_at is None]
        leaving = [watched.ended_at for watched in boxes if watched.ended_at is not None]
        is_ending = any(now - ended_at < memory.PATIENCE_SECONDS for ended_at in leaving)
        mine = memory.Standing(sum(watched.most_bytes for watched in live), ending=is_ending)
        others = self._board.others()
        if memory.is_crowded(mine, others, host) and now - self._exact_at >= self._exact_seconds / MEASURING_SHARE:
            mine.exact = _held_by_group(live)
            self._exact_at, self._exact_seconds = now, time.monotonic() - now
        self._board.publish(mine)
        if (found := memory.victim(mine, others, host)) is None:
            return []
        group, reason = found
        return [(max((each for each in live if each.box.group == group), key=lambda each: each.held_bytes), reason)]


def _held_by_group(boxes: Iterable[Watched]) -> dict[str, memory.Taken]:
    groups: dict[str, memory.Taken] = {}
    for watched in boxes:
        try:
            watched.held_bytes = memory.held_bytes(watched.processes) + watched.temporary_bytes
        except OSError:
            # It has ended.
            watched.held_bytes = 0
        before = groups.get(watched.box.group, memory.Taken(0, 0))
        groups[watched.box.group] = memory.Taken(before.total + watched.held_bytes, max(before.largest, watched.held_bytes))
    return groups


def _looked(due: Iterable[Watched], now: float) -> list[tuple[Watched, str]]:
    """Looks at boxes, and measures their trees where that is due. Runs in a thread. Returns those to be killed, and why."""
    found: list[tuple[Watched, str]] = []
    for watched in due:
        reason = excess(watched, now) or _disk_excess(watched, now)
        if reason is not None:
            found.append((watched, reason))
        watched.interval = BUSY_SECONDS if watched.busy else min(IDLE_SECONDS, watched.interval * 2)
        watched.due = min(now + watched.interval, max(now, watched.began + watched.box.limits.lifetime_seconds))
    return found


def _disk_excess(watched: Watched, now: float) -> str | None:
    try:
        volume = os.statvfs(watched.box.tree)
    except OSError:
        return None
    free = volume.f_bavail * volume.f_frsize
    if watched.free_before is None:
        return measure(watched, free)
    if now - watched.measured < watched.measuring_seconds / MEASURING_SHARE:
        return None
    lost = watched.free_before - free > watched.box.limits.disk_bytes * DISK_SHARE
    scarce = free < min(LEAST_FREE_BYTES, volume.f_blocks * volume.f_frsize * LEAST_FREE_SHARE)
    if lost or scarce or (watched.busy and now - watched.measured >= DISK_SECONDS):
        if reason := measure(watched, free):
            return reason
        if scarce and watched.taken > 16 * MIB:
            return f"disk: the volume has {amount(free)} left, and the workspace has taken {amount(watched.taken)} of it"
    return None


_watchdogs: WeakKeyDictionary[asyncio.AbstractEventLoop, Watchdog] = WeakKeyDictionary()


def watchdog() -> Watchdog:
    """That of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _watchdogs.get(loop)
    if found is None:
        found = _watchdogs[loop] = Watchdog()
    return found
