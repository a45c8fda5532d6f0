"""Copies and moves files and directories. A copy is complete before it gets its name in the tree."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sessions_app.workspace.entries import kind_of
from sessions_app.workspace.errors import IntoItself, TooLarge, Unsupported
from sessions_app.workspace.failures import shown, translated
from sessions_app.workspace.ledger import Ledger, Reservation
from sessions_app.workspace.locking import locked
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import Descriptors, Place, token
from sessions_app.workspace.reading import chunks, open_regular
from sessions_app.workspace.renaming import refuse_into_itself, rename, rename_only, rename_over
from sessions_app.workspace.walking import Limits, below, check_entries, open_directory
from sessions_app.workspace.writing import fill, freed, make_newer, new_directory, refuse_unless_file

# What is opened was replaced meanwhile by a link or something else.
_REPLACED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a copy or a move."""

    at: Descriptors
    ledger: Ledger
    path: Path


@dataclass(frozen=True, slots=True)
class Most:
    """Limits of one copy."""

    files: int
    bytes: int


class Copy:
    """Writes copies of entries into `NEW`, within the limits and the reservation."""

    def __init__(self, path: Path, target: Descriptors, reservation: Reservation, most: Most) -> None:
        self._path, self._target, self._reservation, self._most = path, target, reservation, most
        self._bytes = 0

    def entry(self, source: Place, status: os.stat_result, new: Place) -> None:
        kind = kind_of(status.st_mode)
        if kind == "directory":
            descriptor = open_directory(source)
            try:
                self._directory(descriptor, new)
            finally:
                os.close(descriptor)
        elif kind == "file":
            self._file(source, new)
        elif kind == "link":
            self._link(source, new)
        else:
            raise Unsupported(f"{shown(self._path)}: neither a regular file nor a directory: it is not copied")

    def _file(self, source: Place, new: Place) -> None:
        descriptor = open_regular(source)
        try:
            status = os.fstat(descriptor)
            # A file that grows meanwhile is copied up to its earlier end.
            self._bytes += status.st_size
            if self._bytes > self._most.bytes:
                raise TooLarge(f"{shown(self._path)}: more than {self._most.bytes:,} bytes to copy")
            fill(self._target, new, self._reservation, chunks(descriptor, 0, status.st_size), status.st_mode)
        finally:
            os.close(descriptor)

    def _link(self, source: Place, new: Place) -> None:
        text = os.readlink(source.name, dir_fd=source.parent)
        self._reservation.use(0, 1)
        os.symlink(text, new.name, dir_fd=new.parent)
        if self._target.owner is not None and os.geteuid() == 0:
            os.chown(new.name, *self._target.owner, dir_fd=new.parent, follow_symlinks=False)

    def _directory(self, source: int, new: Place) -> None:
        made = new_directory(self._target, new, self._reservation, os.fstat(source).st_mode)
        try:
            self.below(source, made)
        finally:
            os.close(made)

    def below(self, source: int, new: int) -> None:
        """All below a directory's descriptor, except special files and what disappears meanwhile."""
        levels = [os.dup(new)]
        try:
            for found in below(source, self._path, Limits(self._most.files)):
                while len(levels) > len(found.names):
                    os.close(levels.pop())
                inner = Place(levels[-1], found.names[-1])
                if stat.S_ISDIR(found.status.st_mode):
                    levels.append(new_directory(self._target, inner, self._reservation, found.status.st_mode))
                    continue
                try:
                    self.entry(found.place, found.status, inner)
                except Unsupported:
                    continue
                except OSError as error:
                    if error.errno not in _REPLACED:
                        raise
        finally:
            for level in levels:
                os.close(level)


def copy(source: End, target: End, most: Most, *, fail_if_exists: bool, follow: bool = True) -> None:
    """``follow``: if the source is a link inside its tree, its target is copied, else the link."""
    with (
        source.at.place(source.path, follow=follow) as origin,
        target.at.place(target.path, follow=False) as destination,
        _both(source.path, target.path),
    ):
        source.at.check(origin)
        target.at.check(destination)
        status = _status(origin, source.path)
        is_directory = stat.S_ISDIR(status.st_mode)
        old = _replaceable(destination, target.path, directory=is_directory, fail_if_exists=fail_if_exists)
        _check_entries(source, origin, status, target, destination, old)
        if is_directory:
            refuse_into_itself(source.at, origin, status, target.at, destination)
        # A directory that is replaced is freed when it is removed from the trash.
        credit = freed(old) if old is not None and not stat.S_ISDIR(old.st_mode) else (0, 0)
        with Reservation(target.ledger, credit=credit) as reservation:
            new = Place(target.at.new, token())
            with discarded_on_failure(target.at, new):
                Copy(source.path, target.at, reservation, most).entry(origin, status, new)
                with locked(target.at, destination):
                    if stat.S_ISREG(status.st_mode):
                        make_newer(new, destination)
                    _put(target.at, new, destination, directory=is_directory, fail_if_exists=fail_if_exists)


def move(source: End, target: End, *, fail_if_exists: bool) -> None:
    """Within one tree."""
    at = source.at
    with (
        at.place(source.path, follow=False) as origin,
        target.at.place(target.path, follow=False) as destination,
        _both(source.path, target.path),
    ):
        at.check(origin)
        target.at.check(destination)
        status = _status(origin, source.path)
        refuse_root(origin, source.path)
        is_directory = stat.S_ISDIR(status.st_mode)
        old = _replaceable(destination, target.path, directory=is_directory, fail_if_exists=fail_if_exists)
        _check_entries(source, origin, status, target, destination, old)
        if is_directory:
            refuse_into_itself(at, origin, status, at, destination)
        with locked(at, origin, destination):
            _put(at, origin, destination, directory=is_directory, fail_if_exists=fail_if_exists)
        if old is None or stat.S_ISDIR(old.st_mode):
            return
        if (old.st_dev, old.st_ino) != (status.st_dev, status.st_ino):
            target.ledger.give(*freed(old))
        elif (source.path != target.path) and (left := origin.status_if_any()) is not None and left.st_ino == old.st_ino:
            # Two names of one file: then a rename does nothing.
            os.unlink(origin.name, dir_fd=origin.parent)
            target.ledger.give(0, 1)


def _check_entries(
    source: End, origin: Place, status: os.stat_result, target: End, destination: Place, old: os.stat_result | None
) -> None:
    """Let the guards check what is in a directory that is copied or moved, and in one that it replaces."""
    if stat.S_ISDIR(status.st_mode):
        check_entries(origin, source.path, [(source.at, origin), (target.at, destination)])
    if old is not None and stat.S_ISDIR(old.st_mode):
        check_entries(destination, target.path, [(target.at, destination)])


def refuse_root(place: Place, path: Path) -> None:
    if place.name == b".":
        raise Unsupported(f"{shown(path)}: cannot be moved, replaced or deleted")


def _replaceable(destination: Place, path: Path, *, directory: bool, fail_if_exists: bool) -> os.stat_result | None:
    """The status of the entry that is replaced."""
    old = destination.status_if_any()
    if old is None:
        return None
    if fail_if_exists:
        raise OSError(errno.EEXIST, "exists already")
    refuse_root(destination, path)
    if not directory:
        refuse_unless_file(old, path)
    elif not stat.S_ISDIR(old.st_mode):
        raise OSError(errno.ENOTDIR, "not a directory")
    return old


def _put(at: Descriptors, new: Place, destination: Place, *, directory: bool, fail_if_exists: bool) -> None:
    if fail_if_exists:
        rename_only(new, destination)
    elif directory:
        rename_over(at, new, destination)
    else:
        rename(new, destination)


@contextmanager
def discarded_on_failure(at: Descriptors, new: Place) -> Iterator[None]:
    """What was written in `NEW` is removed if the block fails. The reservation gives it back."""
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(new.status().st_mode):
                shutil.rmtree(os.fsdecode(new.name), ignore_errors=True, dir_fd=at.new)
            else:
                os.unlink(new.name, dir_fd=new.parent)
        raise


def _status(place: Place, path: Path) -> os.stat_result:
    with translated(path):
        return place.status()


@contextmanager
def _both(source: Path, target: Path) -> Iterator[None]:
    """Errors are about the destination; those about the source are translated before."""
    try:
        with translated(target):
            yield
    except IntoItself as error:
        raise IntoItself(f"{shown(source)} to {shown(target)}: {error}") from None
