"""Turns errors of the operating system into errors of the file mechanism."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sessions_app.workspace import errors
from sessions_app.workspace.paths import Path

_BY_NUMBER: dict[int, tuple[type[errors.FileError], str]] = {
    errno.ENOENT: (errors.Missing, "does not exist"),
    errno.ENOTDIR: (errors.NotADirectory, "is not a directory, or has a parent that is none"),
    errno.EISDIR: (errors.IsADirectory, "is a directory"),
    errno.EEXIST: (errors.Exists, "exists already"),
    errno.ENOTEMPTY: (errors.NotEmpty, "is a directory that is not empty"),
    errno.EXDEV: (errors.Outside, "leads out of the workspace"),
    errno.ELOOP: (errors.Unsupported, "has too many links in its path"),
    errno.EACCES: (errors.NotPermitted, "its permissions, or those of its directory, do not allow this"),
    errno.EPERM: (errors.NotPermitted, "its permissions, or those of its directory, do not allow this"),
    errno.EROFS: (errors.NotPermitted, "is on a read-only file system"),
    # A program holds a lease on it; opening it without O_NONBLOCK would wait for that.
    errno.EAGAIN: (errors.NotPermitted, "is locked by a program"),
    errno.EBUSY: (errors.NotPermitted, "is in use by the system"),
    errno.ENAMETOOLONG: (errors.BadUri, "has a name or path that is too long"),
    errno.EINVAL: (errors.BadUri, "has a name that the file system does not take"),
    errno.EILSEQ: (errors.BadUri, "has a name that the file system does not take"),
    errno.ENOSPC: (errors.NoRoom, "there is no room left on the disk"),
    errno.EDQUOT: (errors.NoRoom, "there is no room left on the disk"),
    errno.EMLINK: (errors.NoRoom, "its directory has too many entries"),
    errno.EFBIG: (errors.TooLarge, "is larger than the file system or a limit of the process allows"),
}


def shown(path: Path) -> str:
    return "/".join(path) or "the workspace's root"


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of the block are about this path. What is no fault of the path, such as EIO, stays an ``OSError``."""
    try:
        yield
    except OSError as error:
        kind, reason = _BY_NUMBER.get(error.errno or 0, (None, ""))
        if kind is None:
            raise
        raise kind(f"{shown(path)}: {reason}") from error
