"""Finds the workspace of a ``file:`` URI, for callers that may use it.

A URI belongs to the workspace of the tenant with the longest root that contains it. Every other URI is outside, and so is a
workspace that a limited key may not use: the answer is the same, and comes without a look at the disk.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, PathOutside, SessionNotFound, WorkspacesOff
from sessions_app.core.tenancy import access
from sessions_app.models import LONGEST_ROOT, Session, Workspace
from sessions_app.workspace import paths
from sessions_app.workspace.errors import BadUri, Outside
from sessions_app.workspace.paths import Path

SESSIONS = "sessions"
"""The first name of the roots of private workspaces; the second one is the session's public id."""
DEFAULT: Path = ("workspace",)
"""The root of the tenant's default workspace."""
DEEPEST_ROOT = 32
_TOUCHED_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a workspace. ``workspace``: its row; None if nothing was made yet, which only readers get.

    ``root``: the names of its root's URI; ``path``: the names inside.
    """

    tenant: int
    workspace: int | None
    public_id: str
    root: Path
    path: Path

    @property
    def uri(self) -> str:
        return paths.uri_of(self.root + self.path)

    @property
    def directory(self) -> pathlib.Path:
        """The workspace's directory on this host, for ``Tree``."""
        return directory_of(self.tenant, self.public_id)

    @property
    def mounted_at(self) -> str:
        """Where sandboxes see the tree."""
        return "/" + "/".join(self.root)

    @property
    def mounted_path(self) -> str:
        """Where sandboxes see this path."""
        return "/" + "/".join(self.root + self.path)


def directory_of(tenant: int, public_id: str) -> pathlib.Path:
    return base() / str(tenant) / public_id


def are_there() -> bool:
    """Whether this server has workspaces."""
    return settings.AGENTHOST_WORKSPACES_DIR is not None


def base() -> pathlib.Path:
    """The directory of all workspaces. WorkspacesOff if there is none."""
    found: pathlib.Path | None = settings.AGENTHOST_WORKSPACES_DIR
    if found is None:
        raise WorkspacesOff
    return found


def parse(uri: str, member: str = "uri") -> Path:
    """The names of the URI; ``member`` names it in errors."""
    try:
        return paths.parse(uri)
    except Outside:
        raise PathOutside from None
    except BadUri as error:
        raise InvalidInput([Fault((member,), str(error))]) from None


def find(caller: Caller, uri: str, member: str = "uri") -> Place:
    """The place of a URI for a caller. PathOutside if it is in no workspace that the caller may use."""
    base()
    path = parse(uri, member)
    row = covering(caller.tenant, path)
    if row is not None:
        require_visible(caller, row)
        touch(row)
        return of_row(row, path)
    if is_in_default(caller, path):
        return Place(caller.tenant, None, "", DEFAULT, path[len(DEFAULT) :])
    if session_without_workspace(caller, path) is not None:
        return Place(caller.tenant, None, "", path[:2], path[2:])
    raise PathOutside


def default_directory(caller: Caller) -> str | None:
    """The URI of the tenant's default workspace, for callers that may use it."""
    if not are_there() or not caller.sight.is_whole:
        return None
    return paths.uri_of(DEFAULT)


def is_in_default(caller: Caller, path: Path) -> bool:
    """Whether the path is in the tenant's default workspace, and the caller may make that."""
    return path[: len(DEFAULT)] == DEFAULT and caller.sight.is_whole


def covering(tenant: int, path: Path) -> Workspace | None:
    """The tenant's workspace with the longest root that contains the path."""
    ends = range(1, min(len(path), DEEPEST_ROOT) + 1)
    roots = [root for end in ends if len(root := paths.uri_of(path[:end])) <= LONGEST_ROOT]
    rows = Workspace.objects.filter(tenant_id=tenant, removed_at=None, root__in=roots) if roots else []
    return max(rows, key=lambda row: len(row.root), default=None)


def of_row(row: Workspace, path: Path) -> Place:
    """``path``: from the root of all URIs."""
    root = paths.parse(row.root)
    return Place(row.tenant_id, row.pk, row.public_id, root, path[len(root) :])


def can_be_root(path: Path) -> bool:
    """Whether a workspace may have this root, or one above it."""
    if not path or path[0] in paths.RESERVED or path[0] == SESSIONS:
        return False
    return len(path) <= DEEPEST_ROOT and len(paths.uri_of(path)) <= LONGEST_ROOT


def require_visible(caller: Caller, row: Workspace) -> None:
    """PathOutside for a limited caller, unless a live session that it sees is bound to the workspace."""
    if caller.sight.is_whole:
        return
    if not access.visible(caller).filter(workspace_id=row.pk).exists():
        raise PathOutside


def touch(row: Workspace) -> None:
    """Note that the workspace is in use, once an hour."""
    if row.used_at > timezone.now() - _TOUCHED_EVERY:
        # Clocks that differ make no difference here.
        return
    Workspace.objects.filter(pk=row.pk, used_at__lt=Now() - _TOUCHED_EVERY).update(used_at=Now())


def session_without_workspace(caller: Caller, path: Path) -> Session | None:
    """The session that the path names (``/sessions/ID/…``), if the caller may see it and it has no workspace yet."""
    if len(path) < 2 or path[0] != SESSIONS:
        return None
    try:
        found = access.session(caller, path[1])
    except SessionNotFound:
        return None
    return found if Session.objects.filter(pk=found.pk, workspace=None).exists() else None
