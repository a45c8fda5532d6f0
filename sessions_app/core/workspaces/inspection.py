"""What an operator sees of a workspace's files, and takes out of it. The caller checks rights and writes the audit record.

Nothing is made here: a workspace that was never used is empty. Every function works on the disk, so it blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from django.conf import settings

from sessions_app.core.base.errors import Fault, InvalidInput, PathNotFound
from sessions_app.core.base.piping import Piped
from sessions_app.core.workspaces import places, trees
from sessions_app.core.workspaces.files import refusals
from sessions_app.models import Workspace
from sessions_app.workspace import archive, paths
from sessions_app.workspace.entries import Entry
from sessions_app.workspace.errors import BadUri, Missing, Outside
from sessions_app.workspace.paths import Path
from sessions_app.workspace.tree import Tree

_UNLIMITED = archive.Limits(files=10**9, bytes=2**62)
"""Programs may write more than the quotas before they are stopped; an export has all of it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries of a directory by name. ``more``: others follow the last one."""

    entries: Sequence[Entry]
    more: bool


@dataclass(frozen=True, slots=True)
class Content:
    """The start of a file with ``size`` bytes."""

    entry: Entry
    data: bytes


def path_of(text: str) -> Path:
    """The path that an operator gives, with names between slashes. InvalidInput if no file can have it."""
    try:
        return paths.resolve((), text.split("/"))
    except (BadUri, Outside) as error:
        raise InvalidInput([Fault(("path",), str(error))]) from None


def look(row: Workspace, path: Path, after: str, most: int, most_bytes: int) -> Listing | Content:
    """A directory's entries behind the name ``after``, or the start of a file. PathNotFound, InvalidInput, FilesAway."""
    tree = trees.tree_of(_place(row, path))
    with refusals("path"):
        try:
            entry = tree.stat(path, follow=True)
        except Missing:
            if path:
                raise
            return Listing([], more=False)
        if entry.leads_to == "directory":
            return _listing(tree, path, after, most)
        return Content(entry, tree.read(path, length=most_bytes, most=most_bytes))


def _listing(tree: Tree, path: Path, after: str, most: int) -> Listing:
    found = sorted(tree.list(path, most=settings.AGENTHOST_WORKSPACE_FILES), key=lambda entry: entry.name)
    behind = [entry for entry in found if entry.name > after]
    return Listing(behind[:most], more=len(behind) > most)


def tar(row: Workspace) -> Piped:
    """The whole workspace as a tar file. PathNotFound if there is no file in it."""

    def write(out: IO[bytes]) -> None:
        archive.export(trees.tree_of(_place(row, ())), out, limits=_UNLIMITED)

    return Piped(write, "workspace-export")


def is_empty(row: Workspace) -> bool:
    """Whether nothing was ever written to it."""
    return not trees.tree_of(_place(row, ())).exists()


def _place(row: Workspace, path: Path) -> places.Place:
    if row.removed_at is not None:
        raise PathNotFound
    return places.of_row(row, paths.parse(row.root) + path)
