"""A workspace's tree of files: reads and changes it while a sandbox may change it at the same time."""

from __future__ import annotations

import os
import pathlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from sessions_app.workspace import copying, reading, removing, walking, writing
from sessions_app.workspace.copying import End
from sessions_app.workspace.entries import Details, Entry, Usage
from sessions_app.workspace.failures import translated
from sessions_app.workspace.guarding import Guard
from sessions_app.workspace.ledger import Ledger, Unlimited
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import CONTENTS, NEW, TRASH, Descriptors, Place, token
from sessions_app.workspace.renaming import rename_only
from sessions_app.workspace.resolving import DIRECTORY, Resolver, usual
from sessions_app.workspace.writing import Splice, Wish

MOST_ENTRIES = 100_000
MOST_COPIED_BYTES = 1024**3
_REMOVED_AT_ONCE = 1000


class Tree:
    """The files in ``directory``/tree. All methods are synchronous, thread-safe and raise ``FileError``.

    ``directory`` is the workspace's own directory; nobody but the server can open it. Only `contents` is mounted in sandboxes.
    ``owner`` (uid, gid) owns new files if this process is root. ``resolver`` is the kernel's where it has one. ``guard``: may
    refuse the real paths of all that is read or changed; `walk` and the sums do not ask it.

    Hard links are read and written like any file: a sandbox can link only what is in its own mount, which is this tree, so a
    link cannot bring in a file of another tenant or of the server. Names of links are replaced, never the linked content.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        owner: tuple[int, int] | None = None,
        ledger: Ledger | None = None,
        resolver: Resolver | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.directory = directory
        self.owner = owner
        self.ledger: Ledger = Unlimited() if ledger is None else ledger
        self._resolver = resolver or usual()
        self._guard = guard

    def guarded(self, guard: Guard | None) -> Tree:
        """The same tree with another guard."""
        return Tree(self.directory, owner=self.owner, ledger=self.ledger, resolver=self._resolver, guard=guard)

    @property
    def contents(self) -> pathlib.Path:
        """The directory that sandboxes mount."""
        return self._part(CONTENTS)

    def create(self) -> None:
        """Make the tree's directories. Does nothing if they exist."""
        self.create_parts()
        if not self.exists():
            self._create_contents()

    def give_to_owner(self) -> bool:
        """Give all contents to `owner`, if they are another's and this process is root; whether they were."""
        if self.owner is None or os.geteuid() != 0:
            return False
        try:
            directory = os.open(self.contents, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return walking.give(directory, self.owner)
        finally:
            os.close(directory)

    def create_parts(self) -> None:
        """Make the directories around `contents`."""
        made = not self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        if made:
            # The user of sandboxes can get to `contents` and to nothing else.
            self.directory.chmod(0o711)
        for name in (NEW, TRASH):
            self._part(name).mkdir(mode=0o700, exist_ok=True)

    def _create_contents(self) -> None:
        made = self._part(NEW + b"/" + token())
        made.mkdir()
        made.chmod(0o755)
        if self.owner is not None and os.geteuid() == 0:
            os.chown(made, *self.owner)
        base = os.open(self.directory, DIRECTORY)
        try:
            rename_only(Place(base, NEW + b"/" + os.fsencode(made.name)), Place(base, CONTENTS))
        except FileExistsError:
            # Another process was faster.
            made.rmdir()
        finally:
            os.close(base)

    def exists(self) -> bool:
        """Whether `create` has made the tree."""
        return self.contents.is_dir()

    def stat(self, path: Path, *, follow: bool = False) -> Entry:
        """The entry; of a link's target if ``follow``."""
        with self.open() as at:
            return reading.stat_entry(at, path, follow=follow)

    def read(self, path: Path, *, offset: int = 0, length: int | None = None, most: int) -> bytes:
        """A file's bytes from ``offset`` on: ``length`` of them (fewer at its end), or all.

        Raises ``TooLarge`` if these are more than ``most``. Follows links inside the tree.
        """
        with self.open() as at:
            return reading.read(at, path, offset, length, most)

    def details(self, path: Path, *, follow: bool) -> Details:
        """The entry with its real path; of a link's target if ``follow``."""
        with self.open() as at:
            return reading.details(at, path, follow=follow)

    def write(
        self,
        path: Path,
        data: bytes | Iterable[bytes],
        *,
        create_only: bool = False,
        splice: Splice | None = None,
        if_match: str | None = None,
        most: int | None = None,
    ) -> None:
        """Create or replace a file; others see its old or its new content, never a part. Keeps a replaced file's mode.

        A link inside the tree is followed, and its target is replaced. ``create_only``: raises ``Exists`` if there is
        anything, a link too. ``splice``: the data becomes a part of the file, which then has at most ``most`` bytes (else
        ``TooLarge``). ``if_match``: raises ``Changed`` unless the file there has this `etag`. The directory must exist.
        """
        with self.open() as at:
            writing.write(at, self.ledger, path, data, Wish(create_only, splice, if_match, most))

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Make a directory. Raises ``Exists`` if there is anything.

        ``parents``: make the missing ones above it too; then an existing directory is no error.
        """
        with self.open() as at:
            writing.make_directory(at, self.ledger, path, parents=parents)

    def list(self, path: Path, *, most: int = MOST_ENTRIES) -> list[Entry]:
        """A directory's entries, by name. Raises ``TooMany`` if there are more than ``most``.

        Raises ``Unsupported`` if its links take too long to follow.
        """
        with self.open() as at:
            return reading.list_entries(at, path, most)

    def walk(self, path: Path, *, most: int = MOST_ENTRIES) -> Iterator[tuple[Path, Entry]]:
        """All entries below a directory, each with its path in the tree, directories before their entries.

        Links are reported and not followed. Entries whose names are not valid Unicode are left out. Raises ``TooMany`` after
        ``most`` entries. Close the iterator if you stop early.
        """
        with self.open() as at:
            yield from walking.walk(at, path, most)

    def copy(
        self,
        source: Path,
        destination: Path,
        *,
        fail_if_exists: bool = False,
        into: Tree | None = None,
        most_files: int = MOST_ENTRIES,
        most_bytes: int = MOST_COPIED_BYTES,
    ) -> None:
        """Copy a file, or a directory with all below it, to ``destination`` (in another tree: ``into``).

        A file replaces a file, a directory replaces a whole directory; a file never replaces a directory, nor a directory a
        file. Links below a directory are copied as links, special files are left out. A failure leaves nothing behind.
        """
        most = copying.Most(most_files, most_bytes)
        target = into or self
        with self.open() as at, target.open() as target_at:
            ends = End(at, self.ledger, source), End(target_at, target.ledger, destination)
            copying.copy(*ends, most, fail_if_exists=fail_if_exists)
            target._sweep_a_little(target_at)

    def move(
        self,
        source: Path,
        destination: Path,
        *,
        fail_if_exists: bool = False,
        into: Tree | None = None,
        most_files: int = MOST_ENTRIES,
        most_bytes: int = MOST_COPIED_BYTES,
    ) -> None:
        """Rename a file, link or directory; into another tree: copy it and delete it here. Replaces as `copy` does."""
        if into is None or into.directory == self.directory:
            with self.open() as at, (into or self).open() as into_at:
                ends = End(at, self.ledger, source), End(into_at, self.ledger, destination)
                copying.move(*ends, fail_if_exists=fail_if_exists)
                self._sweep_a_little(at)
            return
        most = copying.Most(most_files, most_bytes)
        with self.open() as at, into.open() as into_at:
            ends = End(at, self.ledger, source), End(into_at, into.ledger, destination)
            copying.copy(*ends, most, fail_if_exists=fail_if_exists, follow=False)
            self._delete(at, source, recursive=True)

    def delete(self, path: Path, *, recursive: bool = False) -> None:
        """Delete a file, a link itself, or a directory (with ``recursive``: and all below it).

        A directory disappears at once; a large one is removed from the disk later, by `sweep`.
        """
        with self.open() as at:
            self._delete(at, path, recursive=recursive)

    def _delete(self, at: Descriptors, path: Path, *, recursive: bool) -> None:
        removing.delete(at, self.ledger, path, recursive=recursive)
        if recursive:
            self._sweep_a_little(at)

    def _sweep_a_little(self, at: Descriptors) -> None:
        """Free what a small directory takes at once. The entry is gone already, so a failure is left to `sweep`."""
        with suppress(OSError):
            removing.sweep(at, self.ledger, _REMOVED_AT_ONCE)

    def usage(self, *, most: int = 10 * MOST_ENTRIES) -> Usage:
        """Count everything on the disk, deleted directories that are not yet removed too."""
        return deque(self.measure(most=most, step=most + 1), maxlen=1)[0]

    def measure(self, *, most: int = 10 * MOST_ENTRIES, step: int = 1000) -> Iterator[Usage]:
        """`usage` in steps: the sums so far, after each ``step`` entries and at the end."""
        with self.open() as at, translated(()):
            yield from walking.measure(at, most, step)

    def sweep(self, batch: int = 1000) -> bool:
        """Remove at most ``batch`` entries of deleted directories and of interrupted writes; True if none are left."""
        with self.open() as at, translated(()):
            return removing.sweep(at, self.ledger, batch)

    def remove(self, batch: int = 1000) -> bool:
        """Delete the whole workspace's directory, at most ``batch`` entries per call; True when it is gone.

        The ledger is not called: the caller forgets the workspace's sums.
        """
        with translated(()):
            if not self.directory.exists():
                return True
            for name in (NEW, TRASH):
                self._part(name).mkdir(mode=0o700, exist_ok=True)
            with self.open_without_contents() as at:
                return removing.remove_workspace(at, self.directory, batch)

    def _part(self, name: bytes) -> pathlib.Path:
        return self.directory / os.fsdecode(name)

    def open(self) -> Descriptors:
        """Descriptors for one operation; for the modules of this package."""
        with translated(()):
            return Descriptors(self.directory, self._resolver, self.owner, guard=self._guard)

    def open_without_contents(self) -> Descriptors:
        """As `open`, for a tree whose `contents` need not exist; ``root`` is the workspace's own directory."""
        with translated(()):
            return Descriptors(self.directory, self._resolver, self.owner, deleting=True)
