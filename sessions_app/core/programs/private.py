"""Private directories of programs that get no workspace: empty at first, removed at the end.

They are in the system's temporary directory. Each is locked by the process that made it, so that those of a process that was
killed are removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sessions_app.workspace import sandbox
from sessions_app.workspace.errors import FileError
from sessions_app.workspace.tree import Tree

PREFIX = "agenthost-program-"
_LEFT_SECONDS = 60.0
"""A directory is made before it is locked; so a new one is not taken for one of a dead process."""
_REMOVING_SECONDS = 10.0


class PrivateDirectory:
    """A directory for one program, which runs as ``uid`` if this process is root. Its methods use the disk."""

    def __init__(self, uid: int) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            # The user of sandboxes can get to the contents and to nothing else.
            self._directory.chmod(0o711)
            self._tree = Tree(self._directory, owner=sandbox.owner(uid))
            self._tree.create()
        except BaseException:
            self.remove()
            raise

    @property
    def contents(self) -> Path:
        return self._tree.contents

    def remove(self) -> None:
        """Delete it. What cannot be deleted in some time is left to the next process."""
        try:
            _remove(self._directory)
        finally:
            os.close(self._lock)


def remove_left() -> None:
    """Delete the directories of processes that were killed."""
    for directory in _left():
        descriptor = -1
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(directory)
        if descriptor >= 0:
            os.close(descriptor)


def _left() -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == os.geteuid() and time.time() - status.st_ctime > _LEFT_SECONDS:
                        yield Path(entry.path)


def _remove(directory: Path) -> None:
    until = time.monotonic() + _REMOVING_SECONDS
    tree = Tree(directory)
    with contextlib.suppress(FileError, OSError):
        while not tree.remove() and time.monotonic() < until:
            pass
