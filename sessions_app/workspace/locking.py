"""Locks between all threads and processes of the server that change a workspace, by the name that they are about to change.

One file beside the tree has a byte for each name. Sandboxes do not see it, so no program can hold a lock. A lock ends with its
descriptor, and so with a process that dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sessions_app.workspace.places import LOCKS, Descriptors, Place

_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def locked(at: Descriptors, *places: Place) -> Iterator[None]:
    """Wait until no other operation of the server has locked one of these names, and keep them locked during the block.

    Programs in sandboxes are not stopped. Operations lock all their names with one call, so none waits for itself.
    """
    numbers = sorted({_number(place) for place in places})
    descriptor = os.open(LOCKS, _OPEN, 0o600, dir_fd=at.base)
    try:
        for number in numbers:
            _lock(descriptor, number)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, number: int) -> None:
    if sys.platform == "linux":
        # Of the open file, not of the process: threads of one process exclude each other too.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0))
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _number(place: Place) -> int:
    """The byte of a name. The directory counts by its inode, because links lead to it by several paths."""
    text = b"%d/%s" % (os.fstat(place.parent).st_ino, place.name)
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
