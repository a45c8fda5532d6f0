"""Quotas of workspaces: bytes and files of each, and bytes of all of a tenant.

An operation reserves room before it writes, by conditional updates, and gives back what it did not use at its end. If its
process dies, the recount of housekeeping (``upkeep``) corrects the numbers.
"""

from __future__ import annotations

import threading
from types import TracebackType

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now

from sessions_app.core.base import database
from sessions_app.core.base.errors import PathOutside, WorkspaceFull
from sessions_app.core.workspaces.places import Place
from sessions_app.models import Workspace, WorkspaceTotal
from sessions_app.workspace.errors import NoRoom


class QuotaReached(NoRoom):
    """A quota leaves too little room. ``refusal``: the core's error."""

    def __init__(self, refusal: WorkspaceFull) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


class Room:
    """The ledger of one operation in one workspace; a context manager. It returns its database connection after each call."""

    def __init__(self, place: Place) -> None:
        assert place.workspace is not None
        self._tenant, self._workspace = place.tenant, place.workspace
        self._free = [0, 0]
        """Given back to this object, but not to the database yet: bytes and files."""
        self._lock = threading.Lock()

    def __enter__(self) -> Room:
        try:
            begun = Workspace.objects.filter(pk=self._workspace, removed_at=None).update(
                operations=F("operations") + 1, revision=F("revision") + 1, changed_at=Now()
            )
        finally:
            database.release()
        if not begun:
            raise PathOutside
        return self

    def take(self, size: int, files: int) -> None:
        with self._lock:
            more = (max(0, size - self._free[0]), max(0, files - self._free[1]))
            if any(more):
                try:
                    self._reserve(*more)
                finally:
                    database.release()
            self._free[0] += more[0] - size
            self._free[1] += more[1] - files

    def give(self, size: int, files: int) -> None:
        with self._lock:
            self._free[0] += size
            self._free[1] += files

    def _reserve(self, size: int, files: int) -> None:
        of_tenant = settings.AGENTHOST_TENANT_WORKSPACE_BYTES
        most_bytes, most_files = settings.AGENTHOST_WORKSPACE_BYTES, settings.AGENTHOST_WORKSPACE_FILES
        with transaction.atomic():
            if size:
                totals = WorkspaceTotal.objects.filter(tenant_id=self._tenant, bytes__lte=of_tenant - size)
                if not totals.update(bytes=F("bytes") + size):
                    raise QuotaReached(
                        WorkspaceFull("bytes in all workspaces of a tenant", of_tenant, "AGENTHOST_TENANT_WORKSPACE_BYTES")
                    )
            rows = Workspace.objects.filter(pk=self._workspace)
            if size:
                rows = rows.filter(bytes__lte=most_bytes - size)
            if files:
                rows = rows.filter(files__lte=most_files - files)
            if not rows.update(bytes=F("bytes") + size, files=F("files") + files, revision=F("revision") + 1):
                raise QuotaReached(self._why(size, most_bytes, most_files))

    def _why(self, size: int, most_bytes: int, most_files: int) -> WorkspaceFull:
        used = Workspace.objects.filter(pk=self._workspace).values_list("bytes", flat=True).first() or 0
        if size and used + size > most_bytes:
            return WorkspaceFull("bytes in a workspace", most_bytes, "AGENTHOST_WORKSPACE_BYTES")
        return WorkspaceFull("files in a workspace", most_files, "AGENTHOST_WORKSPACE_FILES")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        try:
            with transaction.atomic():
                size, files = self._free
                if size:
                    WorkspaceTotal.objects.filter(tenant_id=self._tenant).update(bytes=Greatest(F("bytes") - size, 0))
                Workspace.objects.filter(pk=self._workspace).update(
                    bytes=Greatest(F("bytes") - size, 0),
                    files=Greatest(F("files") - files, 0),
                    operations=Greatest(F("operations") - 1, 0),
                    revision=F("revision") + 1,
                    changed_at=Now(),
                )
        finally:
            database.release()
