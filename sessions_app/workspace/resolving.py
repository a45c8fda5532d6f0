"""Opens directories by path without leaving a root directory.

Both resolvers follow links that stay below the root. Everything that would lead out of it fails with EXDEV: an absolute link,
`..` above the root, another file system, and magic links of /proc. A link that is swapped while the path is resolved makes
no difference, because no path is checked first and used afterwards: each step continues from an open descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache

from sessions_app.workspace.paths import MOST_NAMES

Resolver = Callable[[int, bytes], int]
"""Opens the directory at a relative path below a directory's descriptor. The result serves only to name entries in it."""

DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
MOST_LINKS = 40
"""As in the kernel."""

# The number of the system call is the same on all architectures that Python runs on, except Alpha.
_OPENAT2 = 437
_RESOLVE = 0x01 | 0x02 | 0x08
"""RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH."""
# `..` in a path fails with EAGAIN if anything is renamed on the machine at the same moment.
_ATTEMPTS = 100


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call_system(number: int, *arguments: object) -> int:
    """A system call that Python has no function for. Raises ``OSError``."""
    result = int(libc().syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def by_kernel(root: int, path: bytes) -> int:
    """Resolve with one `openat2` (Linux 5.6)."""
    how = _How(DIRECTORY, 0, _RESOLVE)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    for _ in range(_ATTEMPTS):
        try:
            return call_system(_OPENAT2, ctypes.c_int(root), ctypes.c_char_p(path or b"."), ctypes.byref(how), size)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
    return by_names(root, path)


def by_names(root: int, path: bytes) -> int:
    """Resolve name by name: each directory is opened without following a link, and links are read and resolved here."""
    device = os.fstat(root).st_dev
    # `..` returns to the directory through which the path came, so that a directory that is moved meanwhile leads nowhere else.
    way = [os.dup(root)]
    names, links = deque(path.split(b"/")), 0
    try:
        while names:
            name = names.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if len(way) == 1:
                    raise OSError(errno.EXDEV, "above the root")
                os.close(way.pop())
                continue
            if len(way) > 2 * MOST_NAMES:
                raise OSError(errno.ENAMETOOLONG, "too deep")
            try:
                way.append(os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=way[-1]))
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                links += 1
                names.extendleft(reversed(_link(name, way[-1], links).split(b"/")))
            else:
                if os.fstat(way[-1]).st_dev != device:
                    raise OSError(errno.EXDEV, "another file system")
        return way.pop()
    finally:
        for descriptor in way:
            os.close(descriptor)


def _link(name: bytes, directory: int, links: int) -> bytes:
    """The text of the link, of which this is the ``links``th in the path."""
    try:
        text = os.readlink(name, dir_fd=directory)
    except OSError as error:
        raise OSError(errno.ENOTDIR if error.errno == errno.EINVAL else error.errno, "not a directory") from None
    if links > MOST_LINKS:
        raise OSError(errno.ELOOP, "too many links")
    if text.startswith(b"/"):
        raise OSError(errno.EXDEV, "an absolute link")
    return text


@lru_cache(maxsize=1)
def usual() -> Resolver:
    """`by_kernel` if this kernel and its filters of system calls have it, else `by_names`."""
    if sys.platform != "linux":
        return by_names
    root = os.open("/", DIRECTORY)
    try:
        os.close(by_kernel(root, b"."))
    except OSError:
        return by_names
    finally:
        os.close(root)
    return by_kernel
