"""Workspaces as archives, for the operator's commands: exports and imports, which are audited, and the list of workspaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO

from sessions_app.core.base import database
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.tenancy import audit
from sessions_app.core.workspaces import making, places, templates, trees
from sessions_app.core.workspaces.places import Place
from sessions_app.core.workspaces.room import Room
from sessions_app.models import Session, Tenant, Workspace
from sessions_app.workspace import archive
from sessions_app.workspace.errors import Missing
from sessions_app.workspace.paths import Path, uri_of

_UNLIMITED = archive.Limits(files=10**9, bytes=2**62)
"""Programs may write more than the quotas before they are stopped; an export has all of it."""


def export(tenant: Tenant, uri: str, out: IO[bytes], *, actor: str, address: str = "") -> None:
    """Write the directory with this URI to ``out``, as tar. InvalidInput, FilesAway, WorkspacesOff; ``FileError`` of the disk."""
    path = places.parse(uri)
    row = places.covering(tenant.pk, path)
    if row is None:
        raise _refused(f"{uri} is in no workspace of {tenant.slug}")
    place = places.of_row(row, path)
    audit.record(
        actor=actor, action=audit.Action.WORKSPACE_EXPORTED, target=f"workspace {place.uri}", tenant=tenant, address=address
    )
    tree = trees.tree_of(place, make=True)
    try:
        archive.export(tree, out, path=place.path, limits=_UNLIMITED)
    except Missing:
        raise _refused(f"there is no directory {uri}") from None


def import_archive(
    tenant: Tenant, uri: str, file: IO[bytes], *, into: Path = (), actor: str, address: str = ""
) -> tuple[str, int, int]:
    """Unpack a tar, tar.gz or zip file into an empty workspace, or into the new directory ``into`` of any workspace.

    A workspace that does not exist is made. Returns the URI, and the bytes and files of the workspace. Nothing is changed if
    this fails. InvalidInput, WorkspaceFull, WorkspacesOff, FilesAway; ``FileError`` of the archive and the disk.
    """
    place = _root(tenant, uri)
    tree = trees.tree_of(place, make=True)
    if not into and tree.list((), most=archive.Limits().files):
        raise _refused(f"the workspace {uri} is not empty; unpack into a new directory with --into")
    with Room(place) as room:
        tree = trees.tree_of(place, room)
        if into[:-1]:
            tree.make_directory(into[:-1], parents=True)
        archive.seed(tree, file, templates.limits(), path=into)
    audit.record(
        actor=actor,
        action=audit.Action.WORKSPACE_IMPORTED,
        target=f"workspace {uri_of(place.root + into)}",
        tenant=tenant,
        address=address,
    )
    size, files = Workspace.objects.values_list("bytes", "files").get(public_id=place.public_id)
    database.release()
    return uri_of(place.root + into), size, files


def _root(tenant: Tenant, uri: str) -> Place:
    """The root of the workspace with this URI, which is made if there is none."""
    places.base()
    path = places.parse(uri)
    row = places.covering(tenant.pk, path)
    if row is None:
        if len(path) == 2 and path[0] == places.SESSIONS:
            session = Session.objects.filter(tenant=tenant, public_id=path[1]).first()
            if session is None:
                raise _refused(f"{tenant.slug} has no session {path[1]}")
            row = making.private_of(session)
        elif places.can_be_root(path):
            row = making.shared(tenant.pk, path)
        else:
            raise _refused(f"{uri} cannot be the root of a workspace")
    place = places.of_row(row, path)
    if place.path:
        raise _refused(f"{uri} is inside the workspace {row.root}; give that, and --into {'/'.join(place.path)}")
    return place


def _refused(detail: str) -> InvalidInput:
    return InvalidInput([Fault((), detail)])


@dataclass(frozen=True, slots=True)
class Line:
    tenant: str
    root: str
    bytes: int
    files: int
    sessions: int
    used_at: datetime


def listing(tenant: Tenant | None, most: int) -> Iterator[Line]:
    """The workspaces by tenant and root, at most ``most``."""
    rows = Workspace.objects.filter(removed_at=None).select_related("tenant").order_by("tenant__slug", "root")
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    for row in rows[:most]:
        bound = Session.objects.filter(workspace_id=row.pk).count()
        yield Line(row.tenant.slug, row.root, row.bytes, row.files, bound, row.used_at)
