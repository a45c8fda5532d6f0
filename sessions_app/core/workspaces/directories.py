"""Directories in workspaces for programs: the terminals of clients, and the tools of a session.

Called in ``threads.run``. The tree of the place exists when these return.
"""

from __future__ import annotations

from sessions_app.core.base import database
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.workspaces import access, files, making, places, trees
from sessions_app.core.workspaces.places import Place
from sessions_app.models import Session, Workspace
from sessions_app.workspace import paths
from sessions_app.workspace.tree import Tree


def of_terminal(caller: Caller, cwd: str | None, session: Session | None = None) -> Place:
    """The directory in which a terminal starts.

    ``cwd``: a URI; None: the session's working directory, or without a session the tenant's default workspace. PathOutside if
    it is in no workspace that the caller may use, PathNotFound if there is no such directory, InvalidInput (``cwd``) if it is
    no ``file:`` URI or no directory, ScopeMissing for a key that may only read, AccessDenied, WorkspacesOff, FilesAway.
    """
    caller.require(WRITE)
    if cwd is None and session is not None:
        place = of_session(session)
        access.require_programs(caller, place)
        return place
    place = making.find_or_make(caller, paths.uri_of(places.DEFAULT) if cwd is None else cwd, "cwd")
    access.require_programs(caller, place)
    _open(place)
    return place


def of_session(session: Session) -> Place:
    """A session's working directory, for its own tools and terminals; its workspace's root if it does not exist any more."""
    place = making.of_session(session)
    return _existing(place, trees.tree_of(place, make=True))


def if_made(session: Session) -> Place | None:
    """``of_session`` without making anything; None if the session has no workspace yet."""
    place = making.bound(session)
    return None if place is None else _existing(place, trees.tree_of(place))


def _existing(place: Place, tree: Tree) -> Place:
    if place.path and not files.is_directory(tree, place.path):
        place = places.Place(place.tenant, place.workspace, place.public_id, place.root, ())
    return place


def _open(place: Place) -> None:
    tree = trees.tree_of(place, make=True)
    files.require_directory(tree, place.path, "cwd")


def of_row(workspace: int, uri: str) -> Place | None:
    """The place of a URI in the workspace with this row, for a process that found both in the database; None: it was removed."""
    row = Workspace.objects.filter(pk=workspace, removed_at=None).first()
    database.release()
    return None if row is None else places.of_row(row, paths.parse(uri))
