"""When a file was made, which Python tells on some systems only."""

from __future__ import annotations

import ctypes
import os
import struct

from sessions_app.workspace.places import Place
from sessions_app.workspace.resolving import libc

_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_SIZE = 256
_MASK = struct.Struct("=I")
_BTIME = struct.Struct("=qI")
_BTIME_AT = 80


def created_at(place: Place) -> int | None:
    """Unix time in milliseconds; None if the system or the file system does not know it."""
    statx = getattr(libc(), "statx", None)
    if statx is None:
        status = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
        born = getattr(status, "st_birthtime", None)
        return None if born is None else int(born * 1000)
    found = ctypes.create_string_buffer(_SIZE)
    if statx(ctypes.c_int(place.parent), ctypes.c_char_p(place.name), _AT_SYMLINK_NOFOLLOW, ctypes.c_uint(_STATX_BTIME), found):
        return None
    if not _MASK.unpack_from(found)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = _BTIME.unpack_from(found, _BTIME_AT)
    return int(seconds * 1000 + nanoseconds // 1_000_000)
