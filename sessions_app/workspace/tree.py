"""A workspace's tree of files: reads and changes it while a sandbox may change it at the same time."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator

from sessions_app.workspace.entries import Entry, Usage
from sessions_app.workspace.ledger import Ledger, Unlimited
from sessions_app.workspace.paths import Path

MOST_ENTRIES = 100_000
MOST_COPIED_BYTES = 1024**3


class Tree:
    """The files in ``directory``/tree. All methods are synchronous, thread-safe and raise ``FileError``.

    ``directory`` is the workspace's own directory; nobody but the server can open it. Only `contents` is mounted in sandboxes.
    ``owner`` (uid, gid) owns new files if this process is root.
    """

    def __init__(self, directory: pathlib.Path, *, owner: tuple[int, int] | None = None, ledger: Ledger | None = None) -> None:
        self.directory = directory
        self.owner = owner
        self.ledger: Ledger = ledger or Unlimited()

    @property
    def contents(self) -> pathlib.Path:
        """The directory that sandboxes mount."""
        return self.directory / "tree"

    def create(self) -> None:
        """Make the tree's directories. Does nothing if they exist."""
        raise NotImplementedError

    def exists(self) -> bool:
        """Whether `create` has made the tree."""
        raise NotImplementedError

    def stat(self, path: Path, *, follow: bool = False) -> Entry:
        """The entry; of a link's target if ``follow``."""
        raise NotImplementedError

    def read(self, path: Path, *, offset: int = 0, length: int | None = None, most: int) -> bytes:
        """A file's bytes from ``offset`` on: ``length`` of them (fewer at its end), or all.

        Raises ``TooLarge`` if these are more than ``most``. Follows links inside the tree.
        """
        raise NotImplementedError

    def write(self, path: Path, data: bytes | Iterable[bytes], *, create_only: bool = False) -> None:
        """Create or replace a file; others see its old or its new content, never a part. Keeps a replaced file's mode.

        A link inside the tree is followed, and its target is replaced. ``create_only``: raises ``Exists`` if there is
        anything, a link too. The directory must exist.
        """
        raise NotImplementedError

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Make a directory. Raises ``Exists`` if there is anything.

        ``parents``: make the missing ones above it too; then an existing directory is no error.
        """
        raise NotImplementedError

    def list(self, path: Path, *, most: int = MOST_ENTRIES) -> list[Entry]:
        """A directory's entries, by name. Raises ``TooMany`` if there are more than ``most``."""
        raise NotImplementedError

    def walk(self, path: Path, *, most: int = MOST_ENTRIES) -> Iterator[tuple[Path, Entry]]:
        """All entries below a directory, each with its path in the tree, directories before their entries.

        Links are reported and not followed. Entries whose names are not valid Unicode are left out. Raises ``TooMany`` after
        ``most`` entries. Close the iterator if you stop early.
        """
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

    def delete(self, path: Path, *, recursive: bool = False) -> None:
        """Delete a file, a link itself, or a directory (with ``recursive``: and all below it).

        A directory disappears at once; a large one is removed from the disk later, by `sweep`.
        """
        raise NotImplementedError

    def usage(self, *, most: int = 10 * MOST_ENTRIES) -> Usage:
        """Count everything on the disk, deleted directories that are not yet removed too."""
        raise NotImplementedError

    def measure(self, *, most: int = 10 * MOST_ENTRIES, step: int = 1000) -> Iterator[Usage]:
        """`usage` in steps: the sums so far, after each ``step`` entries and at the end."""
        raise NotImplementedError

    def sweep(self, batch: int = 1000) -> bool:
        """Remove at most ``batch`` entries of deleted directories and of interrupted writes; True if none are left."""
        raise NotImplementedError

    def remove(self, batch: int = 1000) -> bool:
        """Delete the whole workspace's directory, at most ``batch`` entries per call; True when it is gone."""
        raise NotImplementedError
