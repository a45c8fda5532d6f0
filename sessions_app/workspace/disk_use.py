"""How much a tree and the programs that work in it take of the volume, measured while hostile programs change it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEEPEST = 300
# Of one box; each costs a stat.
MOST_DESCRIPTORS = 100_000


@dataclass(frozen=True)
class DiskUse:
    bytes: int
    files: int


def _opened(name: str, parent: int) -> int | None:
    """The directory, opened. One that its owner closed with chmod is opened again for the owner: it would hide its content."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        with contextlib.suppress(OSError):
            place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                Path(f"/proc/self/fd/{place}").chmod(0o700)
            finally:
                os.close(place)
            return os.open(name, flags, dir_fd=parent)
    except OSError:
        pass
    return None


def of_tree(directory: Path, *, most_files: int) -> DiskUse:
    """What is in `directory`. Stops counting at more than `most_files`; directories that are too deep count as too many files."""
    total = files = 0
    linked: set[int] = set()
    stack: list[tuple[int, Iterator[os.DirEntry[str]]]] = []

    def enter(descriptor: int) -> None:
        try:
            entries = os.scandir(descriptor)
        except OSError:
            os.close(descriptor)
            return
        stack.append((descriptor, entries))

    enter(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        while stack and files <= most_files:
            descriptor, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                os.close(descriptor)
                continue
            files += 1
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if found.st_ino in linked:
                    continue
                linked.add(found.st_ino)
            total += found.st_blocks * 512
            if stat.S_ISDIR(found.st_mode):
                if len(stack) >= DEEPEST:
                    return DiskUse(total, most_files + 1)
                if (inner := _opened(entry.name, descriptor)) is not None:
                    enter(inner)
    finally:
        for descriptor, entries in stack:
            entries.close()  # type: ignore[attr-defined]  # os.scandir's iterator has it
            os.close(descriptor)
    return DiskUse(total, files)


def of_deleted_files(processes: Path, device: int) -> int:
    """Bytes of files that have no name any more but are open in a process of the box. `processes` is its /proc."""
    seen: dict[int, int] = {}
    left = MOST_DESCRIPTORS
    for process in _names(processes):
        if not process.isdigit():
            continue
        place = processes / process / "fd"
        for name in _names(place):
            left -= 1
            if left < 0:
                return sum(seen.values())
            with contextlib.suppress(OSError):
                found = os.stat(f"{place}/{name}")  # noqa: PTH116
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_dev == device:
                    seen[found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
