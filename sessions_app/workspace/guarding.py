"""Lets a guard refuse paths, by the real place of what an operation has opened.

A path that is checked as text can lead elsewhere through a link. So the check is made on open descriptors: the kernel reports
where the directory is in which the operation is about to open or change a name.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Protocol

from sessions_app.workspace.errors import Refused
from sessions_app.workspace.paths import Path


class Guard(Protocol):
    """Decides about paths in the tree, as the text of their names."""

    def check(self, path: Path) -> None:
        """Raises ``Refused`` if the operation may not use the path."""
        ...

    def hides(self, path: Path) -> bool:
        """Whether lists leave the path out."""
        ...


def real_path(root: int, directory: int, name: bytes) -> Path:
    """The path of a name in an open directory, from the tree's open root. Raises ``Refused`` if it is not below that."""
    above, below = _location(root), _location(directory)
    if below != above and not below.startswith(above.rstrip(b"/") + b"/"):
        raise Refused(None)
    names = [each for each in below[len(above) :].split(b"/") if each]
    if name not in (b"", b"."):
        names.append(name)
    return tuple(each.decode(errors="surrogateescape") for each in names)


def _location(descriptor: int) -> bytes:
    """Where the kernel sees an open directory."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")
        return os.readlink(b"/proc/self/fd/%d" % descriptor)  # noqa: PTH115 - bytes, as names need not be UTF-8
    except OSError as error:
        # Without /proc nothing can be checked, so nothing is opened.
        raise OSError(errno.EACCES, "the place of an open directory is not known") from error
