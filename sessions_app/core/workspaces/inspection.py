"""What an operator sees of a workspace's files, and takes out of it. The caller checks rights and writes the audit record.

Nothing is made here: a workspace that was never used is empty. Every function works on the disk, so it blocks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import IO, cast

from django.conf import settings

from sessions_app.core.base import database
from sessions_app.core.base.errors import Fault, InvalidInput, PathNotFound
from sessions_app.core.workspaces import places, trees
from sessions_app.core.workspaces.files import refusals
from sessions_app.models import Workspace
from sessions_app.workspace import archive, paths
from sessions_app.workspace.entries import Entry
from sessions_app.workspace.errors import BadUri, Missing, Outside
from sessions_app.workspace.paths import Path
from sessions_app.workspace.tree import Tree

log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
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


async def tar(row: Workspace) -> AsyncIterator[bytes]:
    """The whole workspace as a tar file, which a thread writes as fast as it is read. PathNotFound if there is no file in it.

    If the disk fails in the middle, this raises: an archive that looks complete is complete.
    """
    reading, writing = os.pipe()
    failure: list[Exception] = []
    thread = threading.Thread(target=_write, args=(row, writing, failure), name="workspace-export")
    thread.start()
    loop = asyncio.get_running_loop()
    try:
        while chunk := await loop.run_in_executor(None, os.read, reading, _CHUNK):
            yield chunk
        if failure:
            raise failure[0]
    finally:
        # The thread gets an error for its next write, if it is not done.
        os.close(reading)


def _write(row: Workspace, descriptor: int, failure: list[Exception]) -> None:
    out = _Pipe(descriptor)
    try:
        archive.export(trees.tree_of(_place(row, ())), cast("IO[bytes]", out), limits=_UNLIMITED)
    except BrokenPipeError:
        # The reader has gone.
        return
    except Exception as error:
        log.warning("workspace_not_exported workspace=%s: %s", row.public_id, type(error).__name__)
        failure.append(error)
    finally:
        out.end()
        os.close(descriptor)
        database.release()


class _Pipe:
    """The end of a pipe into which ``tarfile`` writes, once more when an unfinished archive is discarded: that is ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_ended = False

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest and not self._has_ended:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError:
                self._has_ended = True
                raise
        return len(data)

    def end(self) -> None:
        self._has_ended = True


def is_empty(row: Workspace) -> bool:
    """Whether nothing was ever written to it."""
    return not trees.tree_of(_place(row, ())).exists()


def _place(row: Workspace, path: Path) -> places.Place:
    if row.removed_at is not None:
        raise PathNotFound
    return places.of_row(row, paths.parse(row.root) + path)
