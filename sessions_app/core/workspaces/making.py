"""Makes workspaces and binds sessions to them."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import PathOutside, SessionNotFound, WorkspaceFull, WorkspacesOff
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.workspaces import places, templates, trees
from sessions_app.core.workspaces.places import DEFAULT, SESSIONS, Place
from sessions_app.models import Session, Workspace, WorkspaceTotal
from sessions_app.workspace import paths
from sessions_app.workspace.errors import FileError
from sessions_app.workspace.paths import Path

_COUNTS = "bytes, files, operations, revision"
_TIMES = "changed_at, used_at, created_at"
_INSERT = f"""insert into sessions_app_workspace (tenant_id, public_id, root, private, template_agent, {_COUNTS}, {_TIMES})
 values (%s, %s, %s, %s, %s, 0, 0, 0, 0, {{now}}, {{now}}, {{now}})
 on conflict (tenant_id, root) where removed_at is null do nothing returning id"""
_INSERT_TOTAL = "insert into sessions_app_workspacetotal (tenant_id, bytes, workspaces) values (%s, 0, 0) on conflict do nothing"


@dataclass(frozen=True, slots=True)
class WorkingDirectory:
    """The workspace to which a session is to be bound. ``workspace``: its row; None: it is found or made at ``root``."""

    root: str
    workspace: int | None = None


def find_or_make(caller: Caller, uri: str, member: str = "uri") -> Place:
    """``places.find`` for a caller that changes something: makes the default workspace and a session's own one."""
    place = places.find(caller, uri, member)
    if place.workspace is not None:
        return place
    if place.root == DEFAULT:
        row = _shared(caller, DEFAULT)
    else:
        session = places.session_without_workspace(caller, place.root)
        if session is None:
            # It was made or the session was deleted meanwhile.
            return _again(places.find(caller, uri, member))
        row = private_of(session)
    return places.of_row(row, place.root + place.path)


def find_used(caller: Caller, uri: str, member: str = "uri") -> Place:
    """``places.find`` for a caller that uses files: makes a session's own workspace if its agent has a template."""
    place = places.find(caller, uri, member)
    if place.workspace is None and place.root != DEFAULT:
        session = places.session_without_workspace(caller, place.root)
        if session is not None and templates.of_agent(session.agent_name) is not None:
            return find_or_make(caller, uri, member)
    return place


def _again(place: Place) -> Place:
    if place.workspace is None:
        raise PathOutside
    return place


def of_session(session: Session) -> Place:
    """The working directory of a session, in its workspace, which is made if there is none."""
    return bound(session) or _directory(private_of(session), None)


def bound(session: Session) -> Place | None:
    """The working directory of a session; None if it has no workspace yet."""
    places.base()
    found = Session.objects.filter(pk=session.pk).only("workspace", "directory").first()
    if found is None:
        raise SessionNotFound
    if found.workspace_id is None:
        return None
    row = Workspace.objects.filter(pk=found.workspace_id, removed_at=None).first()
    if row is None:
        raise PathOutside
    places.touch(row)
    return _directory(row, found.directory)


def _directory(row: Workspace, directory: str | None) -> Place:
    root = paths.parse(row.root)
    path = root if directory is None or row.private else _inside(root, directory)
    return places.of_row(row, path)


def _inside(root: Path, directory: str) -> Path:
    try:
        path = paths.parse(directory)
    except FileError:
        return root
    return path if path[: len(root)] == root else root


def private_of(session: Session) -> Workspace:
    """The workspace of a session that has none, made now; SessionNotFound if the session was deleted."""
    root = (SESSIONS, session.public_id)
    with transaction.atomic():
        locked = (
            Session.objects.select_for_update(no_key=True).filter(pk=session.pk).only("pk", "workspace", "agent_name").first()
        )
        if locked is None:
            raise SessionNotFound
        if locked.workspace_id is not None:
            return Workspace.objects.get(pk=locked.workspace_id)
        row = _insert(session.tenant_id, paths.uri_of(root), private=True, agent=locked.agent_name)
        if row is None:
            raise SessionNotFound
        Session.objects.filter(pk=session.pk).update(workspace=row.pk)
    return row


def _shared(caller: Caller, root: Path) -> Workspace:
    row = shared(caller.tenant, root)
    places.require_visible(caller, row)
    return row


def shared(tenant: int, root: Path) -> Workspace:
    """The shared workspace of the tenant with this root, made now if there is none."""
    uri = paths.uri_of(root)
    with transaction.atomic():
        row = _insert(tenant, uri, private=False)
    row = row or Workspace.objects.filter(tenant_id=tenant, removed_at=None, root=uri).first()
    if row is None:
        raise PathOutside
    return row


def _insert(tenant: int, root: str, *, private: bool, agent: str | None = None) -> Workspace | None:
    """The new workspace, or None if there is one with this root. Called in a transaction. WorkspaceFull: too many.

    ``agent``: the one for whose session it is made.
    """
    template_agent = agent if agent is not None and templates.of_agent(agent) is not None else None
    most = settings.AGENTHOST_TENANT_WORKSPACES
    raw_sql.execute([raw_sql.Statement(_INSERT_TOTAL, (tenant,))])
    # It locks the total until the end of the transaction; the row of a workspace always comes after it.
    counted = WorkspaceTotal.objects.filter(tenant_id=tenant, workspaces__lt=most).update(workspaces=F("workspaces") + 1)
    if not counted and not Workspace.objects.filter(tenant_id=tenant, removed_at=None, root=root).exists():
        raise WorkspaceFull("workspaces of a tenant", most, "AGENTHOST_TENANT_WORKSPACES")
    made = counted and raw_sql.row(_INSERT, (tenant, new_id("ws"), root, private, template_agent))
    if not made:
        if counted:
            WorkspaceTotal.objects.filter(tenant_id=tenant).update(workspaces=F("workspaces") - 1)
        return None
    return Workspace.objects.get(pk=made[0])


# --- working directories of new sessions ---


def working_directory(caller: Caller, uri: str) -> WorkingDirectory | None:
    """The workspace for a session with this working directory; None: the directory is only shown.

    Uses the disk if the directory is inside an existing workspace. PathOutside if that is one which the key may not use.
    """
    try:
        places.base()
        path = paths.parse(uri)
    except (WorkspacesOff, FileError):
        return None
    row = places.covering(caller.tenant, path)
    if row is not None:
        places.require_visible(caller, row)
        place = places.of_row(row, path)
        if not place.path or _is_directory(place):
            return WorkingDirectory(row.root, row.pk)
    elif (session := places.session_without_workspace(caller, path)) is not None and len(path) == 2:
        made = private_of(session)
        return WorkingDirectory(made.root, made.pk)
    return WorkingDirectory(paths.uri_of(path)) if places.can_be_root(path) else None


def _is_directory(place: Place) -> bool:
    try:
        return trees.tree_of(place).stat(place.path, follow=True).leads_to == "directory"
    except FileError:
        return False


def join(caller: Caller, directory: WorkingDirectory, agent: str) -> int:
    """The row of the workspace, for a session of this agent that is created in the current transaction."""
    if directory.workspace is not None:
        row = _keep(Workspace.objects.filter(pk=directory.workspace, tenant_id=caller.tenant))
    else:
        row = _insert(caller.tenant, directory.root, private=False, agent=agent)
        if row is not None:
            return row.pk
        row = _keep(Workspace.objects.filter(tenant_id=caller.tenant, root=directory.root))
    if row is None:
        raise PathOutside
    places.require_visible(caller, row)
    return row.pk


def join_again(caller: Caller, workspace: int, directory: str) -> int | None:
    """The workspace of a session that is forked in the current transaction; None if the directory is not in it."""
    row = _keep(Workspace.objects.filter(pk=workspace, tenant_id=caller.tenant))
    if row is None:
        return None
    root = paths.parse(row.root)
    try:
        path = paths.parse(directory)
    except FileError:
        # It is only shown, and the workspace is the session's own.
        return None
    return row.pk if path[: len(root)] == root else None


def _keep(rows: QuerySet[Workspace]) -> Workspace | None:
    """The row, which housekeeping does not remove now: it does so only if the row has not changed since it was found unused."""
    rows = rows.filter(removed_at=None)
    return rows.get() if rows.update(used_at=Now(), revision=F("revision") + 1) else None
