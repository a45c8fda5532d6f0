"""What the tree reports of files: entries and sums."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "directory", "link", "other"]
"""`other`: a FIFO, a socket or a device. They are listed and can be deleted, and are never opened."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or link. Its name is valid Unicode: other bytes are replaced by U+FFFD, and it cannot be opened."""

    name: str
    kind: Kind
    size: int
    """In bytes; 0 unless it is a file."""
    modified: int
    """Unix time in milliseconds."""
    target: Kind | None = None
    """For links: the kind of the file to which they lead in the tree; None if they lead out of it or nowhere."""
    executable: bool = False

    @property
    def leads_to(self) -> Kind | None:
        """The kind, of a link's target if it is a link."""
        return self.target if self.kind == "link" else self.kind


@dataclass(frozen=True, slots=True)
class Details:
    """An entry with its real path in the tree. ``created``: Unix time in milliseconds; None if the file system does not say.

    ``etag``: of a file, changes with its content; "" for everything else.
    """

    path: tuple[str, ...]
    kind: Kind
    size: int
    modified: int
    created: int | None
    etag: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tree takes: the bytes of its files on disk, and the number of its files, directories and links."""

    bytes: int
    files: int
    complete: bool = True
    """False: not everything was counted, because there are too many entries or too deep directories."""


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def entry_of(name: bytes, status: os.stat_result, target: Kind | None = None) -> Entry:
    kind = kind_of(status.st_mode)
    return Entry(
        name=name.decode("utf-8", "replace"),
        kind=kind,
        size=status.st_size if kind == "file" else 0,
        modified=status.st_mtime_ns // 1_000_000,
        target=target,
        executable=kind == "file" and bool(status.st_mode & 0o100),
    )


def etag_of(status: os.stat_result) -> str:
    """A text that differs for each content of a file that the file system lets one tell apart.

    Programs can set back the time of a change, but not the time at which they did (``st_ctime``).
    """
    seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.blake2b(repr(seen).encode(), digest_size=15).hexdigest()


def charge(status: os.stat_result) -> int:
    """The bytes that a file counts in its quota: its size, unless much more or less is allocated on the disk.

    So a sparse file counts what it takes, and so does one with space allocated behind its end.
    """
    if not stat.S_ISREG(status.st_mode):
        return 0
    allocated = status.st_blocks * 512
    slack = min(max(status.st_blksize, 4096), 65536)
    return status.st_size if abs(allocated - status.st_size) <= slack else allocated
