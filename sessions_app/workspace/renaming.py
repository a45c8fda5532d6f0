"""Renames between places: what is written in `places.NEW` gets its name, and entries of the tree move."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable

from sessions_app.workspace.errors import IntoItself
from sessions_app.workspace.paths import MOST_NAMES
from sessions_app.workspace.places import Descriptors, Place, token
from sessions_app.workspace.resolving import DIRECTORY, call_system
from sessions_app.workspace.walking import make_accessible

# Of the architectures that Python runs on; others use the fallback.
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_NO_REPLACE = 1
_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)
_ATTEMPTS = 16


def rename(source: Place, destination: Place) -> None:
    """Rename; replaces a file, a link or an empty directory."""
    _with_access(
        source, lambda: os.rename(source.name, destination.name, src_dir_fd=source.parent, dst_dir_fd=destination.parent)
    )


def rename_only(source: Place, destination: Place) -> None:
    """Rename, unless the destination has an entry: then ``FileExistsError``. One step, so that of two at once one fails."""
    _with_access(source, lambda: _rename_only(source, destination))


def _rename_only(source: Place, destination: Place) -> None:
    number = _RENAMEAT2.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        rename_only_in_steps(source, destination)
        return
    try:
        call_system(
            number,
            ctypes.c_int(source.parent),
            ctypes.c_char_p(source.name),
            ctypes.c_int(destination.parent),
            ctypes.c_char_p(destination.name),
            ctypes.c_uint(_NO_REPLACE),
        )
    except OSError as error:
        # NFS and old kernels and filters of system calls. A directory moved into itself is EINVAL here and there.
        if error.errno not in _NOT_HERE:
            raise OSError(error.errno, error.strerror) from None
        rename_only_in_steps(source, destination)


def rename_only_in_steps(source: Place, destination: Place) -> None:
    """As `rename_only`, without the system call for it. A file has both names for a moment."""
    if stat.S_ISDIR(source.status().st_mode):
        os.mkdir(destination.name, 0o700, dir_fd=destination.parent)
        try:
            os.rename(source.name, destination.name, src_dir_fd=source.parent, dst_dir_fd=destination.parent)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, "exists already") from None
            os.rmdir(destination.name, dir_fd=destination.parent)
            raise
        return
    os.link(source.name, destination.name, src_dir_fd=source.parent, dst_dir_fd=destination.parent, follow_symlinks=False)
    os.unlink(source.name, dir_fd=source.parent)


def _with_access(source: Place, call: Callable[[], None]) -> None:
    """A directory whose owner has made it read-only cannot be moved, as its `..` changes; its owner may change that."""
    try:
        call()
    except PermissionError:
        if not stat.S_ISDIR(source.status().st_mode):
            raise
        make_accessible(source)
        call()


def rename_over(at: Descriptors, source: Place, destination: Place) -> None:
    """Rename a directory; an existing one at the destination goes to the trash with all below it.

    ``NotADirectoryError`` if something else is there.
    """
    for _ in range(_ATTEMPTS):
        try:
            rename(source, destination)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        trash = Place(at.trash, token())
        try:
            rename(destination, trash)
        except FileNotFoundError:
            continue
        try:
            rename_only(source, destination)
        except FileExistsError:
            continue
        except OSError:
            rename_only(trash, destination)
            raise
        return
    raise OSError(errno.EEXIST, "made again and again")


def refuse_into_itself(at: Descriptors, source: Place, status: os.stat_result, target: Descriptors, destination: Place) -> None:
    """Raises ``IntoItself`` if the source directory contains the destination or is below what it would replace."""
    if _key(status) in _above(target, destination.parent):
        raise IntoItself("a directory cannot be copied or moved into itself")
    replaced = destination.status_if_any()
    if replaced is None or not stat.S_ISDIR(replaced.st_mode):
        return
    if _key(replaced) == _key(status) or _key(replaced) in _above(at, source.parent):
        raise IntoItself("a directory cannot replace itself or a directory that contains it")


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _above(at: Descriptors, directory: int) -> set[tuple[int, int]]:
    """The directory and all above it in the tree."""
    top = _key(os.fstat(at.root))
    found: set[tuple[int, int]] = set()
    descriptor = os.dup(directory)
    try:
        # Deeper than a path: links lead there.
        for _ in range(8 * MOST_NAMES):
            key = _key(os.fstat(descriptor))
            found.add(key)
            if key == top:
                break
            above = os.open(b"..", DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = above
    finally:
        os.close(descriptor)
    return found
