"""Makes a tree that is filled from a template: a folder or archive of the operator."""

from __future__ import annotations

import fcntl
import os
import pathlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sessions_app.workspace.archive_members import Limits, members
from sessions_app.workspace.copying import discarded_on_failure
from sessions_app.workspace.entries import charge, kind_of
from sessions_app.workspace.errors import TooLarge, TooSlow
from sessions_app.workspace.failures import translated
from sessions_app.workspace.ledger import Reservation
from sessions_app.workspace.places import CONTENTS, NEW, Descriptors, Place, token
from sessions_app.workspace.renaming import rename_only
from sessions_app.workspace.seeding import write_archive, write_folder
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.walking import Limits as WalkLimits
from sessions_app.workspace.walking import below
from sessions_app.workspace.writing import new_directory

_LOCK = b"filling"
_LONGEST_WAIT = 150.0
_LOOKED_EVERY = 0.05


def create(tree: Tree, template: pathlib.Path, limits: Limits | None = None) -> None:
    """Make the tree with the content of the template. Does nothing if it exists.

    It is complete when it appears. Of several processes one makes it, and the others wait for that one. After a failure there
    is no tree, and the next call tries again; what a process that died has left is removed by `Tree.sweep`.

    Raises ``OSError`` if the template cannot be read, and ``BadArchive``, ``TooLarge``, ``TooMany``, ``TooSlow`` or ``NoRoom``.
    """
    limits = limits or Limits()
    with translated(()):
        tree.create_parts()
    with _alone(tree):
        if not tree.exists():
            _fill(tree, template, limits)


def _fill(tree: Tree, template: pathlib.Path, limits: Limits) -> None:
    with tree.open_without_contents() as at, Reservation(tree.ledger) as reservation:
        new = Place(at.new, token())
        with discarded_on_failure(at, new):
            with _written(at, new, reservation) as directory:
                if template.is_dir():
                    write_folder(at, directory, reservation, template, limits)
                else:
                    with template.open("rb") as file:
                        write_archive(at, directory, reservation, file, limits)
            # The root itself is not counted.
            reservation.use(0, -1)
            rename_only(new, Place(at.base, CONTENTS))


@contextmanager
def _written(at: Descriptors, new: Place, reservation: Reservation) -> Iterator[int]:
    directory = new_directory(at, new, reservation)
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def _alone(tree: Tree) -> Iterator[None]:
    """Lets one process after the other fill the tree, so that they do not reserve the room several times.

    Only the rename decides which one makes the tree: where files cannot be locked, all of them try.
    """
    name = tree.directory / os.fsdecode(NEW) / os.fsdecode(_LOCK)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, tree)
        yield
    except FileExistsError:
        if not tree.exists():
            raise
    finally:
        # Those that wait hold the same file, and find the tree.
        with suppress(OSError):
            name.unlink()
        os.close(descriptor)


def _lock(descriptor: int, tree: Tree) -> None:
    until = time.monotonic() + _LONGEST_WAIT
    while not tree.exists():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TooSlow(f"another process has been filling the workspace for more than {_LONGEST_WAIT:g} s") from None
            time.sleep(_LOOKED_EVERY)
        except OSError:
            # A file system without locks.
            return
        else:
            return


def check(template: pathlib.Path, limits: Limits) -> None:
    """Read the whole template. Raises what `create` would raise, except for names that the file system refuses."""
    if not template.is_dir():
        with template.open("rb") as file:
            for member in members(file, limits):
                for _ in member.content:
                    pass
        return
    descriptor = os.open(template, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    left = limits.bytes
    try:
        for found in below(descriptor, (), WalkLimits(limits.files)):
            if kind_of(found.status.st_mode) != "file":
                continue
            os.close(os.open(found.place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found.place.parent))
            left -= charge(found.status)
            if left < 0:
                raise TooLarge(f"more than {limits.bytes:,} bytes")
    finally:
        os.close(descriptor)
