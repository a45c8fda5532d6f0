"""The descriptors of one operation, and the places in the tree that it works on.

A `Place` is an open directory and a name in it. Each operation resolves its path to a place and then uses system calls that
take both and do not follow a link at the name. So whatever a sandbox renames or replaces meanwhile, an operation changes only
entries of directories that were in the tree when it opened them.
"""

from __future__ import annotations

import errno
import os
import pathlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from sessions_app.workspace.failures import translated
from sessions_app.workspace.guarding import Guard, real_path
from sessions_app.workspace.paths import Path, check
from sessions_app.workspace.resolving import DIRECTORY, MOST_LINKS, Resolver

CONTENTS = b"tree"
NEW = b"new"
"""Files and directories that are being written; beside the tree, so that no listing and no sandbox shows them."""
TRASH = b"trash"
"""Deleted directories, until `removing.sweep` has removed them from the disk."""
LOCKS = b"locks"
"""The file of `locking`; it is made at the first lock."""


@dataclass(frozen=True, slots=True)
class Place:
    """A name in an open directory. There need not be anything of this name."""

    parent: int
    name: bytes

    def status(self) -> os.stat_result:
        """Of the entry itself, not of a link's target."""
        return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)

    def status_if_any(self) -> os.stat_result | None:
        try:
            return self.status()
        except FileNotFoundError:
            return None


class Descriptors:
    """The open directories of a workspace, for one operation."""

    def __init__(
        self,
        directory: pathlib.Path,
        resolver: Resolver,
        owner: tuple[int, int] | None,
        *,
        deleting: bool = False,
        guard: Guard | None = None,
    ) -> None:
        self._resolver = resolver
        self.owner = owner
        self.guard = guard
        self._open: list[int] = []
        try:
            self.base = self._opened(os.fsencode(directory), None)
            # A workspace that is being deleted has no tree any more.
            self.root = self.base if deleting else self._opened(CONTENTS, self.base)
            self.new = self._opened(NEW, self.base)
            self.trash = self._opened(TRASH, self.base)
        except BaseException:
            self._close()
            raise

    def _opened(self, name: bytes, parent: int | None) -> int:
        self._open.append(os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent))
        return self._open[-1]

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._close()

    def real_path(self, place: Place) -> Path:
        return real_path(self.root, place.parent, place.name)

    def check(self, place: Place) -> None:
        """Raises ``Refused`` if the guard does not permit the place. Called before the name is opened or changed."""
        if self.guard is not None:
            self.guard.check(self.real_path(place))

    @contextmanager
    def directory(self, path: Path, *, readable: bool = True) -> Iterator[int]:
        """The directory at this path; links inside the tree are followed. ``readable``: its entries can be listed."""
        check(path)
        with translated(path):
            found = self._resolver(self.root, b"/".join(name.encode() for name in path))
            try:
                if readable:
                    path_only, found = found, os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
                    os.close(path_only)
            except OSError:
                os.close(found)
                raise
        try:
            yield found
        finally:
            os.close(found)

    @contextmanager
    def place(self, path: Path, *, follow: bool) -> Iterator[Place]:
        """The place of this path. ``follow``: of the target, if there is a link inside the tree."""
        check(path)
        with translated(path):
            place = self._place(b"/".join(name.encode() for name in path), follow=follow)
        try:
            yield place
        finally:
            os.close(place.parent)

    def _place(self, text: bytes, *, follow: bool) -> Place:
        for _ in range(MOST_LINKS):
            above, _, name = text.rstrip(b"/").rpartition(b"/")
            if name in (b"", b".", b".."):
                # The root, or a link to a directory: it has no name that could be replaced.
                return Place(self._resolver(self.root, text), b".")
            parent = self._resolver(self.root, above)
            try:
                target = _link_text(parent, name) if follow else None
            except OSError:
                os.close(parent)
                raise
            if target is None:
                return Place(parent, name)
            os.close(parent)
            if target.startswith(b"/"):
                raise OSError(errno.EXDEV, "an absolute link")
            text = above + b"/" + target if above else target
        raise OSError(errno.ELOOP, "too many links")


def _link_text(parent: int, name: bytes) -> bytes | None:
    """None if there is no link."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def token() -> bytes:
    """An unused name in `NEW` or `TRASH`."""
    return secrets.token_hex(12).encode()
