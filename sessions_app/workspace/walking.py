"""Visits everything below a directory, with one open descriptor per level."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from sessions_app.workspace.entries import Entry, Usage, charge, entry_of
from sessions_app.workspace.errors import TooMany
from sessions_app.workspace.failures import shown, translated
from sessions_app.workspace.paths import MOST_NAMES, Path
from sessions_app.workspace.places import Descriptors, Place

_MOST_GIVEN = 10_000_000
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Found:
    """An entry below the directory; its place is valid until the next one is asked for."""

    names: tuple[bytes, ...]
    place: Place
    status: os.stat_result


@dataclass(slots=True)
class Limits:
    """How far a walk goes. With ``strict`` it raises ``TooMany`` at a limit, else it sets ``reached`` and leaves the rest out."""

    entries: int
    depth: int = MOST_NAMES
    strict: bool = True
    skip: frozenset[bytes] = frozenset()
    """Names of directories that are not entered."""
    reached: bool = field(default=False, init=False)

    def reach(self, path: Path, text: str) -> None:
        if self.strict:
            raise TooMany(f"{shown(path)}: {text}")
        self.reached = True


@dataclass(slots=True)
class _Level:
    descriptor: int
    names: tuple[bytes, ...]
    entries: Iterator[bytes]


def open_directory(place: Place) -> int:
    """A descriptor of the directory at a place, for listing."""
    return os.open(place.name, _OPEN_DIRECTORY, dir_fd=place.parent)


def below(
    directory: int, path: Path, limits: Limits, open_found: Callable[[Place], int] = open_directory
) -> Generator[Found, None, None]:
    """All entries below a directory's descriptor, directories before their entries.

    Links are not followed and other file systems not entered. What disappears meanwhile is left out. Errors are about ``path``.
    """
    device = os.fstat(directory).st_dev
    levels = [_Level(os.dup(directory), (), iter(()))]
    count = 0
    try:
        levels[0].entries = _names(levels[0].descriptor, limits.entries)
        while levels:
            level = levels[-1]
            name = next(level.entries, None)
            if name is None:
                os.close(levels.pop().descriptor)
                continue
            place = Place(level.descriptor, name)
            status = place.status_if_any()
            if status is None:
                continue
            count += 1
            if count > limits.entries:
                limits.reach(path, f"more than {limits.entries:,} entries below it")
                return
            found = Found((*level.names, name), place, status)
            yield found
            if not stat.S_ISDIR(status.st_mode) or status.st_dev != device or name in limits.skip:
                continue
            if len(found.names) >= limits.depth:
                limits.reach(path, f"directories below it are more than {limits.depth} levels deep")
                continue
            try:
                descriptor = open_found(place)
            except OSError as error:
                # Removed or replaced after it was found.
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue
                raise
            levels.append(_Level(descriptor, found.names, iter(())))
            levels[-1].entries = _names(descriptor, limits.entries - count)
    finally:
        for level in levels:
            os.close(level.descriptor)


def _names(directory: int, most: int) -> Iterator[bytes]:
    """The sorted names, and one more than ``most`` at the most."""
    found: list[bytes] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            found.append(os.fsencode(entry.name))
            if len(found) > most:
                break
    return iter(sorted(found))


def walk(at: Descriptors, path: Path, most: int) -> Iterator[tuple[Path, Entry]]:
    with at.directory(path) as directory, translated(path):
        for found in below(directory, path, Limits(most), open_if_permitted):
            try:
                relative = tuple(name.decode() for name in found.names)
            except UnicodeDecodeError:
                continue
            yield (*path, *relative), entry_of(found.names[-1], found.status)


MOST_CHECKED = 100_000
"""Entries that are checked before a directory is copied, moved, replaced or deleted."""


def check_entries(directory: Place, path: Path, ends: Sequence[tuple[Descriptors, Place]]) -> None:
    """Let the guards of these ends check all that is below the directory, as if it were at each end. Raises ``Refused``."""
    guarded = [(at.guard, at.real_path(place)) for at, place in ends if at.guard is not None]
    if not guarded:
        return
    descriptor = open_directory(directory)
    try:
        for found in below(descriptor, path, Limits(MOST_CHECKED)):
            names = [name.decode(errors="surrogateescape") for name in found.names]
            for guard, base in guarded:
                guard.check((*base, *names))
    finally:
        os.close(descriptor)


def give(directory: int, owner: tuple[int, int]) -> bool:
    """Give a directory and all below it to a user, the directory itself last; False if it is that user's already. For root.

    A link is given, never what it leads to. The directories above an entry stay open meanwhile, so its name cannot be moved.
    """
    if os.fstat(directory).st_uid == owner[0]:
        return False
    for found in below(directory, (), Limits(_MOST_GIVEN, strict=False)):
        # Removed after it was found.
        with contextlib.suppress(FileNotFoundError):
            os.chown(found.place.name, *owner, dir_fd=found.place.parent, follow_symlinks=False)
    os.fchown(directory, *owner)
    return True


def open_if_permitted(place: Place) -> int:
    """As `open_directory`. A directory that the server may not list or enter is left out."""
    try:
        return _entered(open_directory(place))
    except PermissionError:
        raise OSError(errno.ENOENT, "left out") from None


def _entered(descriptor: int) -> int:
    """The directory's descriptor, if its entries can be looked at and not only listed; else ``PermissionError``."""
    try:
        os.stat(b".", dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def measure(at: Descriptors, most: int, step: int) -> Iterator[Usage]:
    """The sums of all directories of the workspace, after each ``step`` entries and at the end."""
    size = files = 0
    # A file with several names in the tree takes its bytes once.
    seen: set[int] = set()
    limits = Limits(most, strict=False)
    for part in (at.root, at.new, at.trash):
        directory = os.open(b".", _OPEN_DIRECTORY, dir_fd=part)
        try:
            for found in below(directory, (), limits, open_even_if_closed):
                files += 1
                if found.status.st_nlink == 1 or found.status.st_ino not in seen:
                    size += charge(found.status)
                    if found.status.st_nlink > 1 and not stat.S_ISDIR(found.status.st_mode):
                        seen.add(found.status.st_ino)
                if files % step == 0:
                    yield Usage(size, files, complete=False)
        finally:
            os.close(directory)
        limits.entries = most - files
        if limits.reached and limits.entries <= 0:
            break
    yield Usage(size, files, complete=not limits.reached)


def open_even_if_closed(place: Place) -> int:
    """Open a directory whose owner has taken away its permissions; they are given back to the owner.

    Otherwise a sandbox could hide files from the quota, or keep them from being deleted.
    """
    try:
        return _entered(open_directory(place))
    except PermissionError:
        make_accessible(place)
        return open_directory(place)


def make_accessible(place: Place) -> None:
    """Let the owner read, change and enter the directory at a place."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(place.name, flags, dir_fd=place.parent)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) | 0o700
        # `fchmod` does not take a descriptor that was opened as a path only.
        if hasattr(os, "O_PATH"):
            os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101 - a descriptor, not a path
        else:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
