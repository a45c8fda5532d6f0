"""The kernel's notifications of directories (Linux), for directories that are open already.

The system call takes a path. The path of a descriptor in /proc leads to that very directory, so a directory that a program
exchanges for a link meanwhile makes no difference.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from typing import Any, NamedTuple

from sessions_app.workspace.resolving import libc

MODIFY, CLOSE_WRITE = 0x2, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED = 0x4000, 0x8000
IS_DIRECTORY = 0x4000_0000
_ONLY_DIRECTORY, _EXCEPT_UNLINKED = 0x0100_0000, 0x0400_0000

GONE = DELETE | MOVED_FROM
CAME = CREATE | MOVED_TO
SELF = DELETE_SELF | MOVE_SELF
_MASK = MODIFY | CLOSE_WRITE | GONE | CAME | SELF | _ONLY_DIRECTORY | _EXCEPT_UNLINKED
_HEADER = struct.Struct("iIII")
_READ_BYTES = 16 * 1024

_OF_SEVERAL_HOSTS = frozenset(
    {
        *(0x6969, 0x517B, 0xFF534D42, 0xFE534D42),  # NFS, SMB
        *(0x00C36400, 0x0BD00BD0, 0x47504653, 0x19830326),  # Ceph, Lustre, GPFS, BeeGFS
        *(0x5346414F, 0x6B414653, 0x73757245),  # AFS, Coda
        *(0x7461636F, 0x01161970),  # OCFS2, GFS2
        *(0x01021997, 0x65735546, 0x786F4256),  # 9P, FUSE, folders of virtual machines
    }
)


class Notice(NamedTuple):
    """``name``: of the entry in the directory with this number; b"" for the directory itself."""

    directory: int
    mask: int
    name: bytes


class Exhausted(Exception):
    """The kernel's limit of watched directories, or of users of notifications, is reached."""


def is_available() -> bool:
    return sys.platform == "linux" and hasattr(libc(), "inotify_init1")


def sees_all(directory: int) -> bool:
    """Whether every change below an open directory comes through this kernel: not if other hosts use the file system."""
    found = ctypes.create_string_buffer(512)
    if libc().fstatfs(ctypes.c_int(directory), found):
        return False
    return int(struct.unpack_from("I", found)[0]) not in _OF_SEVERAL_HOSTS


class Inotify:
    """One queue of notifications; the kernel drops what is more than it takes, and says so."""

    def __init__(self) -> None:
        self.descriptor = _call("inotify_init1", ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: int) -> int:
        """The number of an open directory in this queue; the same if it was added before."""
        path = b"/proc/self/fd/%d" % directory
        return _call("inotify_add_watch", ctypes.c_int(self.descriptor), ctypes.c_char_p(path), ctypes.c_uint32(_MASK))

    def remove(self, number: int) -> None:
        # The kernel may have removed it with its directory.
        libc().inotify_rm_watch(ctypes.c_int(self.descriptor), ctypes.c_int(number))

    def read(self) -> tuple[list[Notice], bool]:
        """Some of the notices that wait, and whether there may be more. Does not block."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return [], False
        found, at = [], 0
        while at < len(data):
            number, mask, _cookie, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            found.append(Notice(number, mask, data[at : at + length].rstrip(b"\0")))
            at += length
        return found, len(data) > _READ_BYTES // 2

    def close(self) -> None:
        os.close(self.descriptor)


def _call(name: str, *arguments: Any) -> int:
    result = int(getattr(libc(), name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise Exhausted(os.strerror(number))
        raise OSError(number, os.strerror(number))
    return result
