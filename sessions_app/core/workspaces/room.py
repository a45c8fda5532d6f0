"""Quotas of workspaces: bytes and files of each, and bytes of all of a tenant.

An operation reserves room before it writes, by conditional updates, and gives back what it did not use at its end. If its
process dies, the recount of housekeeping (``upkeep``) corrects the numbers.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

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


_AHEAD = (4 * 1024 * 1024, 64)
"""Bytes and files that the mechanism reserves at a time (``sessions_app.workspace.ledger``)."""


class Room:
    """The ledger of one operation in one workspace; a context manager. It returns its database connection after each call.

    ``size``: the bytes that the operation is going to write, if they are known; None: it writes none.
    """

    def __init__(self, place: Place, size: int | None = None) -> None:
        assert place.workspace is not None
        self._tenant, self._workspace = place.tenant, place.workspace
        self._ahead = None if size is None else (max(size, _AHEAD[0]), _AHEAD[1])
        self._free = [0, 0]
        """Reserved in the database and not used: bytes and files."""
        self._lock = threading.Lock()

    def __enter__(self) -> Room:
        try:
            self._begin()
        finally:
            database.release()
        return self

    def _begin(self) -> None:
        if self._ahead is not None:
            try:
                self._reserve(*self._ahead, begins=True)
            except QuotaReached:
                # It may need less.
                pass
            else:
                self._free = list(self._ahead)
                return
        begun = Workspace.objects.filter(pk=self._workspace, removed_at=None).update(
            operations=F("operations") + 1, revision=F("revision") + 1, changed_at=Now()
        )
        if not begun:
            raise PathOutside

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

    def _reserve(self, size: int, files: int, *, begins: bool = False) -> None:
        of_tenant = settings.AGENTHOST_TENANT_WORKSPACE_BYTES
        most_bytes, most_files = settings.AGENTHOST_WORKSPACE_BYTES, settings.AGENTHOST_WORKSPACE_FILES
        with transaction.atomic():
            if size:
                totals = WorkspaceTotal.objects.filter(tenant_id=self._tenant, bytes__lte=of_tenant - size)
                if not totals.update(bytes=F("bytes") + size):
                    raise QuotaReached(
                        WorkspaceFull("bytes in all workspaces of a tenant", of_tenant, "AGENTHOST_TENANT_WORKSPACE_BYTES")
                    )
            rows = Workspace.objects.filter(pk=self._workspace, removed_at=None)
            if size:
                rows = rows.filter(bytes__lte=most_bytes - size)
            if files:
                rows = rows.filter(files__lte=most_files - files)
            counts: dict[str, Any] = {"bytes": F("bytes") + size, "files": F("files") + files, "revision": F("revision") + 1}
            if begins:
                counts |= {"operations": F("operations") + 1, "changed_at": Now()}
            if not rows.update(**counts):
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
