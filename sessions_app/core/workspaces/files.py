"""Operations of clients on the files of workspaces. Called in ``threads.run``.

Each finds the place of its URI for the caller, reserves room if it writes, and then works on the disk without a connection to
the database. A scope that is missing is refused by the caller of these functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.conf import settings

from agents_app.access_rules import Operation
from sessions_app.core.base import byte_budget
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import (
    DomainError,
    Fault,
    FileChanged,
    FilesAway,
    InvalidInput,
    PathNotFound,
    PathOutside,
    PathTaken,
)
from sessions_app.core.tenancy import api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.workspaces import access, making, places
from sessions_app.core.workspaces.access import Grants, Guard
from sessions_app.core.workspaces.places import Place
from sessions_app.core.workspaces.room import QuotaReached, Room
from sessions_app.core.workspaces.trees import tree_of
from sessions_app.workspace import errors as mechanism
from sessions_app.workspace.entries import Kind
from sessions_app.workspace.paths import Path, uri_of
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.writing import Splice

_SWEPT = 1000
"""Entries of a deleted directory that are removed from the disk before the answer; housekeeping removes the others."""


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    is_directory: bool


def read(caller: Caller, uri: str, grants: Grants | None = None) -> bytes:
    """A file's bytes. InvalidInput if they are more than AGENTHOST_FILE_BYTES."""
    place = making.find_used(caller, uri)
    with refusals("uri"):
        tree = _read_in(caller, place, grants)
        most = settings.AGENTHOST_FILE_BYTES
        entry = tree.stat(place.path, follow=True)
        if entry.kind == "file" and entry.size > most:
            raise InvalidInput([Fault(("uri",), _too_large(entry.size))])
        # The bytes, and the text with them.
        byte_budget.reserve(3 * entry.size)
        try:
            return tree.read(place.path, most=most)
        except mechanism.TooLarge:
            raise InvalidInput([Fault(("uri",), _too_large(None))]) from None


def read_attached(caller: Caller, uris: Collection[str], grants: Grants | None = None) -> dict[str, bytes]:
    """The files with these URIs that the caller may read, each at most AGENTHOST_IMAGE_BYTES and all together twice that."""
    found: dict[str, bytes] = {}
    most = settings.AGENTHOST_IMAGE_BYTES
    left = 2 * most
    for uri in uris:
        try:
            place = making.find_used(caller, uri)
            with refusals("uri"):
                data = _read_in(caller, place, grants).read(place.path, most=min(most, left))
        except DomainError:
            continue
        found[uri] = data
        left -= len(data)
    return found


@dataclass(frozen=True, slots=True)
class Resolved:
    """A file, directory or link. ``uri``: of its real place. Times are Unix times in milliseconds; ``etag``: "" for no file."""

    uri: str
    kind: Kind
    size: int
    modified: int
    created: int | None
    etag: str


def resolve(caller: Caller, uri: str, grants: Grants | None = None, *, follow: bool) -> Resolved:
    """``follow``: of a link, its target in the workspace. PathNotFound if there is nothing."""
    place = making.find_used(caller, uri)
    with refusals("uri"):
        found = _read_in(caller, place, grants).details(place.path, follow=follow)
    if found.kind == "other":
        raise InvalidInput([Fault(("uri",), "is neither a regular file nor a directory")])
    same = not follow or found.path == place.path
    shown = uri if same else uri_of(place.root + found.path)
    return Resolved(shown, found.kind, found.size, found.modified, found.created, found.etag)


def write(
    caller: Caller,
    uri: str,
    data: bytes,
    grants: Grants | None = None,
    *,
    create_only: bool = False,
    splice: Splice | None = None,
    if_match: str | None = None,
) -> None:
    """Create or replace a file. ``splice``: the data is a part of it; the other bytes stay.

    ``if_match``: FileChanged unless the file there has this etag. No other change through the server comes between.
    """
    if len(data) > settings.AGENTHOST_FILE_BYTES:
        raise InvalidInput([Fault(("data",), _too_large(len(data)))])
    place = making.find_or_make(caller, uri)
    guard = access.guard_of(caller, place, grants, "write")
    with refusals("uri"):
        access.require(guard, place.path)
    with refusals("uri"), Room(place, len(data)) as room:
        tree = tree_of(place, room, make=True, guard=guard)
        most = settings.AGENTHOST_FILE_BYTES
        try:
            tree.write(place.path, data, create_only=create_only, splice=splice, if_match=if_match, most=most)
        except mechanism.TooLarge:
            detail = f"would have more bytes than {most:,}, the limit of a file that is changed in part (AGENTHOST_FILE_BYTES)"
            raise InvalidInput([Fault(("uri",), detail)]) from None


def make_directory(caller: Caller, uri: str, grants: Grants | None = None) -> None:
    """Make a directory and those above it that are missing. PathTaken if something else is there."""
    place = making.find_or_make(caller, uri)
    guard = access.guard_of(caller, place, grants, "write")
    with refusals("uri"):
        access.require(guard, place.path)
    with refusals("uri"), Room(place) as room:
        tree = tree_of(place, room, make=True, guard=guard)
        try:
            if tree.stat(place.path, follow=True).kind != "directory":
                raise PathTaken
        except mechanism.Missing:
            _make_directory(tree, place.path)
        except mechanism.NotADirectory:
            # A name above it is a file's.
            raise PathTaken from None


def _make_directory(tree: Tree, path: Path) -> None:
    try:
        tree.make_directory(path, parents=True)
    except (mechanism.Missing, mechanism.NotADirectory):
        # A link that leads nowhere, or a file that was made meanwhile.
        raise PathTaken from None


def children(caller: Caller, uri: str, grants: Grants | None = None) -> list[Child]:
    """A directory's entries. InvalidInput if they are more than AGENTHOST_LIST_ENTRIES."""
    place, most = making.find_used(caller, uri), settings.AGENTHOST_LIST_ENTRIES
    with refusals("uri"):
        try:
            entries = _read_in(caller, place, grants).list(place.path, most=most)
        except mechanism.TooMany:
            detail = f"the directory has more than {most:,} entries, the limit of a list (AGENTHOST_LIST_ENTRIES)"
            raise InvalidInput([Fault(("uri",), detail)]) from None
        except mechanism.Missing:
            if place.path:
                raise
            # Its directory is made when something is written.
            return []
        except mechanism.NotADirectory:
            raise InvalidInput([Fault(("uri",), "is not a directory")]) from None
    byte_budget.reserve(sum(len(entry.name) + 40 for entry in entries))
    return [Child(entry.name, entry.leads_to == "directory") for entry in entries]


def copy(caller: Caller, source: str, destination: str, grants: Grants | None = None, *, fail_if_exists: bool) -> None:
    """Copy a file, or a whole directory."""
    with _two_ends(caller, source, destination, grants, moves=False) as (tree, path, into, target):
        tree.copy(
            path,
            target,
            fail_if_exists=fail_if_exists,
            into=into,
            most_files=settings.AGENTHOST_COPY_FILES,
            most_bytes=settings.AGENTHOST_COPY_BYTES,
        )
        into.sweep(_SWEPT)


def move(caller: Caller, source: str, destination: str, grants: Grants | None = None, *, fail_if_exists: bool) -> None:
    """Move a file, or a whole directory."""
    with _two_ends(caller, source, destination, grants, moves=True) as (tree, path, into, target):
        tree.move(
            path,
            target,
            fail_if_exists=fail_if_exists,
            into=into,
            most_files=settings.AGENTHOST_COPY_FILES,
            most_bytes=settings.AGENTHOST_COPY_BYTES,
        )
        into.sweep(_SWEPT)
        if tree is not into:
            tree.sweep(_SWEPT)


def delete(caller: Caller, uri: str, grants: Grants | None = None, *, recursive: bool) -> None:
    """Delete a file, a link, or a directory."""
    place = making.find_used(caller, uri)
    _require_below_root(place, "uri")
    guard = access.guard_of(caller, place, grants, "write")
    with refusals("uri"):
        _existing(place, guard)
        with Room(place) as room:
            tree = tree_of(place, room, guard=guard)
            tree.delete(place.path, recursive=recursive)
            tree.sweep(_SWEPT)


def request(caller: Caller, uri: str, grants: Grants, *, read: bool, write: bool) -> None:
    """Grant access to this URI; PathOutside, AccessDenied or ScopeMissing if it cannot be had. Does not use the disk.

    Without ``read`` and ``write`` it is reading.
    """
    operations: list[Operation] = ["write"] if write else []
    if read or not write:
        operations.append("read")
    access.grant(caller, places.find(caller, uri), grants, operations)


# --- trees ---


def is_directory(tree: Tree, path: Path) -> bool:
    try:
        return tree.stat(path, follow=True).leads_to == "directory"
    except mechanism.FileError:
        return False


def require_directory(tree: Tree, path: Path, member: str) -> None:
    """PathNotFound or InvalidInput unless there is a directory."""
    with refusals(member):
        if tree.stat(path, follow=True).leads_to != "directory":
            raise InvalidInput([Fault((member,), "is not a directory")])


def _read_in(caller: Caller, place: Place, grants: Grants | None) -> Tree:
    """``_existing``, for an operation that shows the caller what is there."""
    guard = access.guard_of(caller, place, grants, "read")
    access.require(guard, place.path)
    _record(caller, place)
    return _existing(place, guard)


def _record(caller: Caller, place: Place) -> None:
    """Once an hour for each workspace."""
    if place.workspace is not None:
        api_audit.read(caller, Action.WORKSPACE_READ, f"workspace {uri_of(place.root)}")


def _existing(place: Place, guard: Guard | None = None) -> Tree:
    """The tree, for an operation that finds nothing in one that does not exist yet. The guard's answer comes first."""
    access.require(guard, place.path)
    if place.workspace is None:
        raise mechanism.Missing("nothing was written here yet")
    return tree_of(place, guard=guard)


@contextmanager
def _two_ends(
    caller: Caller, source: str, destination: str, grants: Grants | None, *, moves: bool
) -> Iterator[tuple[Tree, Path, Tree, Path]]:
    """The trees of a copy or move with their paths. Both ends are found before the disk is used."""
    begin = making.find_used(caller, source, "source")
    if moves:
        _require_below_root(begin, "source")
    found = places.find(caller, destination, "destination")
    _require_below_root(found, "destination")
    # What is moved can be read at its new place.
    operations: tuple[Operation, ...] = ("read", "write") if moves else ("read",)
    guard, end_guard = access.guard_of(caller, begin, grants, *operations), access.guard_of(caller, found, grants, "write")
    with refusals(""):
        access.require(end_guard, found.path)
        if found.workspace != begin.workspace:
            # It can be read at its new place.
            _record(caller, begin)
        _existing(begin, guard).stat(begin.path)
        end = making.find_or_make(caller, destination, "destination")
        with ExitStack() as stack:
            room = stack.enter_context(Room(begin))
            tree = into = tree_of(begin, room, guard=guard)
            if end.workspace != begin.workspace:
                into = tree_of(end, stack.enter_context(Room(end)), make=True, guard=end_guard)
            elif guard is not None or end_guard is not None:
                into = tree_of(end, room, guard=end_guard)
            yield tree, begin.path, into, end.path


def _require_below_root(place: Place, member: str) -> None:
    if not place.path:
        raise InvalidInput([Fault((member,), "is the root of a workspace, which cannot be replaced, moved or deleted")])


# --- errors ---


def _too_large(size: int | None) -> str:
    much = "more" if size is None else f"{size:,}"
    limit = settings.AGENTHOST_FILE_BYTES
    return f"has {much} bytes; the limit of one read or write is {limit:,} (AGENTHOST_FILE_BYTES)"


@contextmanager
def refusals(member: str) -> Iterator[None]:
    """Raises the core's errors for the mechanism's. ``member``: of the request, for errors of its value."""
    try:
        yield
    except QuotaReached as error:
        raise error.refusal from None
    except mechanism.Refused as refused:
        raise access.refusal(refused) from None
    except (mechanism.Missing, mechanism.NotADirectory):
        raise PathNotFound from None
    except mechanism.Exists:
        raise PathTaken from None
    except mechanism.Changed:
        raise FileChanged from None
    except (mechanism.Outside, mechanism.NotPermitted):
        raise PathOutside from None
    except (mechanism.NoRoom, mechanism.TooSlow):
        # The disk itself is full or too slow.
        raise FilesAway from None
    except mechanism.FileError as error:
        raise InvalidInput([Fault((member,) if member else (), str(error))]) from None
