"""Archives of trees: exports a tree as tar, and fills a tree from a tar, tar.gz or zip file or from a folder."""

from __future__ import annotations

import io
import os
import tarfile
from typing import IO

from sessions_app.workspace.archive_members import Limits, forget_headers
from sessions_app.workspace.entries import kind_of
from sessions_app.workspace.errors import FileError, TooLarge, Unsupported
from sessions_app.workspace.failures import shown, translated
from sessions_app.workspace.paths import Path, resolve
from sessions_app.workspace.places import Place
from sessions_app.workspace.reading import open_regular
from sessions_app.workspace.seeding import seed, seed_folder
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.walking import Found, below
from sessions_app.workspace.walking import Limits as WalkLimits

__all__ = ["Limits", "export", "seed", "seed_folder"]

_BUFFER = 256 * 1024


def export(tree: Tree, out: IO[bytes], *, path: Path = (), limits: Limits | None = None) -> None:
    """Write all below a directory to ``out`` as a tar file, without owners. Nothing is kept in memory.

    Links that lead out of the workspace, special files, and names that are not valid Unicode are left out. Raises ``TooLarge``
    or ``TooMany`` in the middle of the file if the limits are exceeded: then what was written has no end-of-archive mark.
    """
    limits = limits or Limits()
    rest = limits.bytes
    with tree.open() as at, at.directory(path) as directory, translated(path):
        archive = tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BUFFER)  # noqa: SIM115 - see below
        for found in below(directory, path, WalkLimits(limits.files)):
            rest -= _add(archive, found, path, rest)
            forget_headers(archive)
        # Not if it failed: this writes the mark.
        archive.close()


def _add(archive: tarfile.TarFile, found: Found, path: Path, rest: int) -> int:
    """Add one entry; the bytes of its content."""
    kind = kind_of(found.status.st_mode)
    try:
        names = tuple(name.decode() for name in found.names)
    except UnicodeDecodeError:
        return 0
    header = tarfile.TarInfo("/".join(names))
    header.mode = found.status.st_mode & 0o777
    header.mtime = int(found.status.st_mtime)
    if kind == "directory":
        header.type = tarfile.DIRTYPE
        archive.addfile(header)
    elif kind == "link" and (target := _target_inside(found.place, names)) is not None:
        header.type, header.linkname = tarfile.SYMTYPE, target
        archive.addfile(header)
    elif kind == "file":
        return _add_file(archive, found.place, header, path, rest)
    return 0


def _target_inside(place: Place, names: Path) -> str | None:
    """A link's text if it leads to a path below the exported directory."""
    try:
        target = os.readlink(place.name, dir_fd=place.parent).decode()
        if target.startswith("/"):
            return None
        resolve(names[:-1], target.split("/"))
    except (OSError, UnicodeDecodeError, FileError):
        return None
    return target


def _add_file(archive: tarfile.TarFile, place: Place, header: tarfile.TarInfo, path: Path, rest: int) -> int:
    try:
        descriptor = open_regular(place)
    except (OSError, Unsupported):
        # Removed or replaced after it was found.
        return 0
    try:
        header.size = os.fstat(descriptor).st_size
        if header.size > rest:
            raise TooLarge(f"{shown(path)}: more than the limit of bytes to export")
        archive.addfile(header, _Exactly(descriptor))
    finally:
        os.close(descriptor)
    return header.size


class _Exactly(io.RawIOBase):
    """A file as long as its header says: one that became shorter meanwhile ends with zeros."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0

    def read(self, size: int = -1) -> bytes:
        data = os.pread(self._descriptor, size, self._offset)
        self._offset += size
        return data + bytes(size - len(data))
