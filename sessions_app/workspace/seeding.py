"""Fills a tree from an archive or a folder: everything is unpacked beside the tree first, and then moved into it."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import IO

from sessions_app.workspace.archive_members import Limits, Member, members
from sessions_app.workspace.copying import Copy, Most, discarded_on_failure
from sessions_app.workspace.errors import BadArchive
from sessions_app.workspace.failures import translated
from sessions_app.workspace.ledger import Reservation
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import Descriptors, Place, token
from sessions_app.workspace.renaming import rename_only
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.writing import fill, new_directory

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def seed(tree: Tree, file: IO[bytes], limits: Limits | None = None, *, path: Path = ()) -> None:
    """Unpack a tar, tar.gz or zip file into the tree's root, or into a new directory ``path``.

    Raises ``BadArchive``, ``TooLarge``, ``TooMany``, ``TooSlow`` or ``NoRoom``, and ``Exists`` if something in the root has the
    name of a member; then nothing is changed.
    """

    def unpack(at: Descriptors, new: int, reservation: Reservation) -> None:
        write_archive(at, new, reservation, file, limits or Limits())

    _fill_tree(tree, path, unpack)


def seed_folder(tree: Tree, folder: pathlib.Path, limits: Limits | None = None, *, path: Path = ()) -> None:
    """As `seed`, from a folder of the operator. Links in it are copied as links, and lead nowhere if they lead out of it."""

    def copy(at: Descriptors, new: int, reservation: Reservation) -> None:
        write_folder(at, new, reservation, folder, limits or Limits())

    _fill_tree(tree, path, copy)


def write_archive(at: Descriptors, new: int, reservation: Reservation, file: IO[bytes], limits: Limits) -> None:
    """Unpack into the directory ``new``, which is in `NEW`."""
    with closing(members(file, limits)) as found:
        for member in found:
            _unpack(at, new, reservation, member)


def write_folder(at: Descriptors, new: int, reservation: Reservation, folder: pathlib.Path, limits: Limits) -> None:
    """Copy the entries of a folder into the directory ``new``, which is in `NEW`."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        Copy((), at, reservation, Most(limits.files, limits.bytes)).below(above, new)
    finally:
        os.close(above)


def _fill_tree(tree: Tree, path: Path, write: Callable[[Descriptors, int, Reservation], None]) -> None:
    with tree.open() as at, translated(path), Reservation(tree.ledger) as reservation:
        new = Place(at.new, token())
        with discarded_on_failure(at, new):
            directory = new_directory(at, new, reservation)
            try:
                write(at, directory, reservation)
                if not path:
                    _move_all(directory, at.root)
            finally:
                os.close(directory)
            if path:
                with at.place(path, follow=False) as place:
                    rename_only(new, place)
            else:
                os.rmdir(new.name, dir_fd=new.parent)
                reservation.use(0, -1)


def _move_all(source: int, target: int) -> None:
    """Move all entries; none if one of them exists there."""
    moved: list[bytes] = []
    try:
        with os.scandir(source) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        for name in names:
            rename_only(Place(source, name), Place(target, name))
            moved.append(name)
    except OSError:
        for name in moved:
            with suppress(OSError):
                rename_only(Place(target, name), Place(source, name))
        raise


def _unpack(at: Descriptors, new: int, reservation: Reservation, member: Member) -> None:
    above = member.path if member.kind == "directory" else member.path[:-1]
    with _directory(at, new, reservation, above) as parent:
        if member.kind == "directory":
            return
        place = Place(parent, member.path[-1].encode())
        try:
            if member.kind == "link":
                reservation.use(0, 1)
                os.symlink(member.target.encode(), place.name, dir_fd=parent)
                if at.owner is not None and os.geteuid() == 0:
                    os.chown(place.name, *at.owner, dir_fd=parent, follow_symlinks=False)
            else:
                fill(at, place, reservation, member.content, member.mode)
        except FileExistsError:
            raise BadArchive("the archive has two members of the same name") from None


@contextmanager
def _directory(at: Descriptors, new: int, reservation: Reservation, path: Path) -> Iterator[int]:
    """The directory of this path in what is being unpacked; missing ones are made. No link is followed."""
    descriptor = os.dup(new)
    try:
        for name in path:
            place = Place(descriptor, name.encode())
            try:
                below = os.open(place.name, _OPEN, dir_fd=descriptor)
            except FileNotFoundError:
                below = new_directory(at, place, reservation)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                raise BadArchive("the archive has a member below a file or a link") from None
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)
