"""Deletes entries of the tree, and removes deleted directories from the disk in bounded steps.

A deleted directory is renamed into the trash. There it is removed from the top: its directories are first moved up into the
trash, so that neither the depth of a tree nor the number of its entries matters. A process of a sandbox that is still in a
deleted directory can go on writing there; that only makes it take longer.
"""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import time
from contextlib import suppress

from sessions_app.workspace.copying import refuse_root
from sessions_app.workspace.failures import translated
from sessions_app.workspace.ledger import Ledger, Unlimited
from sessions_app.workspace.locking import locked
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import CONTENTS, LOCKS, NEW, TRASH, Descriptors, Place, token
from sessions_app.workspace.reading import ATTEMPTS
from sessions_app.workspace.renaming import rename
from sessions_app.workspace.walking import check_entries, make_accessible, open_directory
from sessions_app.workspace.writing import freed

INTERRUPTED_AFTER_SECONDS = 6 * 3600
"""Age of an unfinished write that `sweep` removes. No write takes that long."""


def delete(at: Descriptors, ledger: Ledger, path: Path, *, recursive: bool) -> None:
    with at.place(path, follow=False) as place, translated(path):
        at.check(place)
        refuse_root(place, path)
        for _ in range(ATTEMPTS):
            status = place.status()
            try:
                if not stat.S_ISDIR(status.st_mode):
                    with locked(at, place):
                        os.unlink(place.name, dir_fd=place.parent)
                    ledger.give(*freed(status))
                elif recursive:
                    check_entries(place, path, [(at, place)])
                    rename(place, Place(at.trash, token()))
                else:
                    os.rmdir(place.name, dir_fd=place.parent)
                    ledger.give(0, 1)
            except (IsADirectoryError, NotADirectoryError):
                # It was replaced by an entry of the other kind.
                continue
            return
        raise OSError(errno.EISDIR, "replaced again and again")


def sweep(at: Descriptors, ledger: Ledger, batch: int, *, interrupted_after: float = INTERRUPTED_AFTER_SECONDS) -> bool:
    """Remove at most ``batch`` entries; True if nothing is left to remove."""
    before = time.time() - interrupted_after
    for name in _some_names(at.new, batch):
        status = Place(at.new, name).status_if_any()
        if status is not None and status.st_mtime <= before:
            with suppress(FileNotFoundError):
                rename(Place(at.new, name), Place(at.trash, token()))
    left = batch
    while left > 0:
        names = _some_names(at.trash, left)
        if not names:
            return True
        for name in names:
            left -= _remove_some(at.trash, name, ledger, left)
            if left <= 0:
                break
    return False


def _some_names(directory: int, most: int) -> list[bytes]:
    descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(descriptor) as entries:
            return [os.fsencode(entry.name) for entry, _ in zip(entries, range(most), strict=False)]
    finally:
        os.close(descriptor)


def _remove_some(trash: int, name: bytes, ledger: Ledger, most: int) -> int:
    """Remove a directory or file in the trash, or its first ``most`` entries; the number of steps."""
    place = Place(trash, name)
    with suppress(FileNotFoundError):
        status = place.status()
        if not stat.S_ISDIR(status.st_mode):
            _unlink(place, ledger)
            return 1
        if status.st_mode & 0o700 != 0o700:
            make_accessible(place)
        descriptor = open_directory(place)
        try:
            names = _some_names(descriptor, most)
            for inner in names:
                _remove_inner(Place(descriptor, inner), trash, ledger)
        finally:
            os.close(descriptor)
        if len(names) < most:
            try:
                os.rmdir(name, dir_fd=trash)
                ledger.give(0, 1)
            except OSError as error:
                # Somebody still writes there: it stays for the next call.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        return len(names) + 1
    return 1


def _remove_inner(place: Place, trash: int, ledger: Ledger) -> None:
    with suppress(FileNotFoundError):
        try:
            if stat.S_ISDIR(place.status().st_mode):
                rename(place, Place(trash, token()))
            else:
                _unlink(place, ledger)
        except (IsADirectoryError, NotADirectoryError):
            return


def _unlink(place: Place, ledger: Ledger) -> None:
    status = place.status()
    os.unlink(place.name, dir_fd=place.parent)
    ledger.give(*freed(status))


def remove_workspace(at: Descriptors, directory: pathlib.Path, batch: int) -> bool:
    """Delete the workspace's own directory and all in it, in steps; True when it is gone."""
    with suppress(FileNotFoundError):
        rename(Place(at.base, CONTENTS), Place(at.trash, token()))
    if not sweep(at, Unlimited(), batch, interrupted_after=-1):
        return False
    try:
        with suppress(FileNotFoundError):
            os.unlink(LOCKS, dir_fd=at.base)
        for name in (NEW, TRASH):
            os.rmdir(name, dir_fd=at.base)
        directory.rmdir()
    except OSError as error:
        # Somebody still writes there: the next call removes it.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
        return error.errno == errno.ENOENT
    return True
