"""Reads files and directories."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sessions_app.workspace.birth import created_at
from sessions_app.workspace.entries import Details, Entry, Kind, entry_of, etag_of, kind_of
from sessions_app.workspace.errors import FileError, TooLarge, TooMany, Unsupported
from sessions_app.workspace.failures import shown, translated
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import Descriptors, Place

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1024 * 1024
# A sandbox that swaps a link and a file in a loop makes some attempts fail.
ATTEMPTS = 16
TARGETS_SECONDS = 5.0
"""How long a list follows links. A link through many others takes 0.1 s, so 10,000 of them would take many minutes."""


def open_regular(place: Place) -> int:
    """A descriptor of the regular file at a place. ``OSError`` if it is a link, ``Unsupported`` if it is special.

    A special file is not opened; if it replaces a regular one at the very moment, it is opened without waiting and closed.
    """
    _must_be_regular(place.status())
    descriptor = os.open(place.name, _OPEN_FILE, dir_fd=place.parent)
    try:
        _must_be_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _must_be_regular(status: os.stat_result) -> None:
    kind = kind_of(status.st_mode)
    if kind == "directory":
        raise OSError(errno.EISDIR, "a directory")
    if kind == "link":
        raise OSError(errno.ELOOP, "a link")
    if kind == "other":
        raise Unsupported("neither a regular file nor a directory: it is not opened")


@contextmanager
def opened(at: Descriptors, path: Path) -> Iterator[int]:
    """A descriptor of a regular file; links inside the tree are followed."""
    with translated(path):
        descriptor = _open(at, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(at: Descriptors, path: Path) -> int:
    for _ in range(ATTEMPTS):
        with at.place(path, follow=True) as place:
            at.check(place)
            try:
                return open_regular(place)
            except OSError as error:
                # The name became a link after it was resolved.
                if error.errno != errno.ELOOP:
                    raise
            except Unsupported as error:
                raise Unsupported(f"{shown(path)}: {error}") from None
    raise OSError(errno.ELOOP, "replaced by links again and again")


def read(at: Descriptors, path: Path, offset: int, length: int | None, most: int) -> bytes:
    if offset < 0 or (length is not None and length < 0):
        raise ValueError("offset and length are not negative")
    with opened(at, path) as descriptor, translated(path):
        size = os.fstat(descriptor).st_size
        wanted = max(0, size - offset)
        if length is not None:
            wanted = min(wanted, length)
        if wanted > most:
            raise TooLarge(f"{shown(path)}: {wanted:,} bytes; the limit is {most:,}")
        # A file that grows meanwhile is read up to its earlier end.
        return b"".join(chunks(descriptor, offset, wanted))


def chunks(descriptor: int, offset: int, length: int) -> Iterator[bytes]:
    """At most ``length`` bytes from ``offset`` on; fewer if the file ends earlier."""
    while length > 0 and (chunk := os.pread(descriptor, min(length, _CHUNK), offset)):
        yield chunk
        offset += len(chunk)
        length -= len(chunk)


def stat_entry(at: Descriptors, path: Path, *, follow: bool) -> Entry:
    name = path[-1].encode() if path else b""
    with at.place(path, follow=follow) as place, translated(path):
        at.check(place)
        status = place.status()
        return entry_of(name, status, _target(at, path) if stat.S_ISLNK(status.st_mode) else None)


def details(at: Descriptors, path: Path, *, follow: bool) -> Details:
    with at.place(path, follow=follow) as place, translated(path):
        at.check(place)
        status = place.status()
        if follow and stat.S_ISLNK(status.st_mode):
            # The name became a link after it was resolved.
            raise OSError(errno.ELOOP, "replaced by a link")
        kind = kind_of(status.st_mode)
        return Details(
            path=at.real_path(place),
            kind=kind,
            size=status.st_size,
            modified=status.st_mtime_ns // 1_000_000,
            created=created_at(place),
            etag=etag_of(status) if kind == "file" else "",
        )


def _target(at: Descriptors, path: Path) -> Kind | None:
    """The kind of what a link leads to in the tree."""
    try:
        with at.place(path, follow=True) as place, translated(path):
            at.check(place)
            kind = kind_of(place.status().st_mode)
    except (FileError, OSError):
        return None
    return None if kind == "link" else kind


def list_entries(at: Descriptors, path: Path, most: int) -> list[Entry]:
    until = time.monotonic() + TARGETS_SECONDS
    found: list[Entry] = []
    with at.directory(path) as directory, translated(path):
        above = _checked(at, directory)
        for name in names(directory, path, most):
            if at.guard is not None and at.guard.hides((*above, name.decode(errors="surrogateescape"))):
                continue
            if (status := Place(directory, name).status_if_any()) is None:
                continue
            target: Kind | None = None
            if stat.S_ISLNK(status.st_mode):
                if time.monotonic() > until:
                    raise Unsupported(f"{shown(path)}: the links in it take more than {TARGETS_SECONDS:.0f} s to follow")
                target = _target_below(at, path, name)
            found.append(entry_of(name, status, target))
    return sorted(found, key=lambda entry: entry.name)


def _checked(at: Descriptors, directory: int) -> Path:
    """The real path of an open directory that the guard permits; () if there is no guard."""
    place = Place(directory, b".")
    at.check(place)
    return () if at.guard is None else at.real_path(place)


def _target_below(at: Descriptors, path: Path, name: bytes) -> Kind | None:
    try:
        return _target(at, (*path, name.decode()))
    except UnicodeDecodeError:
        return None


def names(directory: int, path: Path, most: int) -> list[bytes]:
    """The names in a directory's descriptor. Raises ``TooMany`` if there are more than ``most``."""
    found: list[bytes] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(found) >= most:
                raise TooMany(f"{shown(path)}: more than {most:,} entries")
            found.append(os.fsencode(entry.name))
    return found
