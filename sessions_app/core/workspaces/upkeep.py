"""Housekeeping of workspaces: removes unused ones and counts what the others use. Bounded in time, resumable at any point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, Greatest, Now

from sessions_app.core.base import database
from sessions_app.core.base.maintenance import Round
from sessions_app.core.workspaces import owners, places, volume
from sessions_app.models import Session, Workspace, WorkspaceTotal
from sessions_app.workspace.errors import FileError
from sessions_app.workspace.tree import Tree

log = logging.getLogger(__name__)

BATCH = 200
_ENTRIES = 1000
"""Entries that are deleted or counted between two looks at the clock."""
_PRIVATE_UNUSED = timedelta(minutes=1)
"""A private workspace is removed this long after its last use, at the earliest."""
_LOST_AFTER = timedelta(hours=1)
"""Operations that began longer ago belong to processes that have died."""
_COUNTED_EVERY = timedelta(days=1)
"""Programs in sandboxes write without a reservation: what was used is counted again after this time."""

_LIVE = Exists(Session.objects.filter(workspace_id=OuterRef("pk")))


def is_needed() -> bool:
    return settings.AGENTHOST_WORKSPACES_DIR is not None


def run(seconds: float, may_run: Callable[[], bool] = lambda: True) -> None:
    """One round. Nothing is removed while the volume is not this installation's. ``may_run`` is asked before each batch."""
    fault = volume.fault(now=True)
    if fault is not None:
        log.error("workspaces_unusable: %s", fault)
        return
    this_round = Round(seconds)
    retire(this_round)
    removed = 0
    while not this_round.over and may_run() and (batch := _rows(_removed(), "removed_at", this_round.skipped)):
        removed += this_round.for_each(batch, lambda row: remove(row, this_round))
    if removed:
        log.info("workspaces_removed count=%s", removed)
    while not this_round.over and may_run() and (batch := _rows(_uncounted(), "changed_at", this_round.skipped)):
        this_round.for_each(batch, lambda row: _counted(row, this_round))
    this_round.report("workspaces")


def _rows(rows: QuerySet[Workspace], order: str, skipped: Collection[int]) -> list[int]:
    return list(rows.exclude(pk__in=list(skipped)).order_by(order).values_list("pk", flat=True)[:BATCH])


# --- removal ---


def retire(this_round: Round) -> None:
    """Mark the workspaces that are not needed any more: they do not exist for clients from now on."""
    live = Workspace.objects.filter(_LIVE, removed_at=None, private=False, used_at__lt=Now() - timedelta(days=1))
    # Retention counts from the end of the last session.
    live.update(used_at=Now())
    since = timedelta(days=settings.AGENTHOST_WORKSPACE_DAYS)
    unused = Q(private=True, used_at__lt=Now() - _PRIVATE_UNUSED) | Q(private=False, used_at__lt=Now() - since)
    candidates = Workspace.objects.filter(unused, ~_LIVE, removed_at=None).order_by("used_at").values_list("pk", "revision")
    while not this_round.over and (batch := list(candidates[:BATCH])):
        for row, revision in batch:
            # A session that joins at the same moment changes the revision.
            Workspace.objects.filter(~_LIVE, pk=row, revision=revision, removed_at=None).update(removed_at=Now())
        if len(batch) < BATCH:
            break


def remove_now(row: int) -> bool:
    """Mark a workspace as removed, whoever uses it: its URI is free, and its sessions get a new one of their own when they need
    one. Workers delete the directory. False: it was removed already.
    """
    with transaction.atomic():
        rows = Workspace.objects.filter(pk=row, removed_at=None)
        if not rows.update(removed_at=Now(), revision=F("revision") + 1):
            return False
        Session.objects.filter(workspace_id=row).update(workspace=None)
    return True


def _removed() -> QuerySet[Workspace]:
    return Workspace.objects.filter(removed_at__isnull=False)


def remove(row: int, this_round: Round) -> int:
    """Delete the directory of a removed workspace and then its row; 1 if both are gone."""
    workspace = Workspace.objects.get(pk=row)
    tree = Tree(places.directory_of(workspace.tenant_id, workspace.public_id))
    database.release()
    try:
        while not tree.remove(_ENTRIES):
            if this_round.over:
                return 0
    except FileError as error:
        log.error("workspace_not_removed workspace=%s: %s", workspace.public_id, type(error).__name__)
        this_round.skipped.add(row)
        return 0
    with transaction.atomic():
        # A deleted session's row may refer to it for another moment.
        Session.with_deleted.filter(workspace_id=row).update(workspace=None)
        _lock_total(workspace.tenant_id)
        if Workspace.objects.filter(pk=row).delete()[0]:
            WorkspaceTotal.objects.filter(tenant_id=workspace.tenant_id).update(workspaces=Greatest(F("workspaces") - 1, 0))
        _sum_up(workspace.tenant_id)
    return 1


# --- counting ---


def _uncounted() -> QuerySet[Workspace]:
    """Workspaces that were used since they were last counted, or have lost operations."""
    never = Q(counted_at=None)
    used = Q(counted_at__lt=Now() - _COUNTED_EVERY, used_at__gt=F("counted_at") - timedelta(hours=1))
    changed = Q(counted_at__lt=Now() - _COUNTED_EVERY, changed_at__gt=F("counted_at"))
    lost = Q(operations__gt=0, changed_at__lt=Now() - _LOST_AFTER)
    return Workspace.objects.filter(never | used | changed | lost, removed_at=None)


def _counted(row: int, this_round: Round) -> int:
    if not recount(row, this_round):
        # It is in use; the next round tries again.
        this_round.skipped.add(row)
    return 1


def recount(row: int, this_round: Round | None = None) -> bool:
    """Count the tree exactly; False if it could not be done, because operations ran meanwhile or the time is up.

    Also for the service of terminals, after a program has ended.
    """
    workspace = Workspace.objects.filter(pk=row, removed_at=None).first()
    if workspace is None:
        return True
    is_lost = Workspace.objects.filter(pk=row, changed_at__lt=Now() - _LOST_AFTER).exists()
    if workspace.operations and not is_lost:
        return False
    tree = Tree(places.directory_of(workspace.tenant_id, workspace.public_id), owner=owners.of(workspace.tenant_id))
    database.release()
    size = entries = 0
    try:
        if tree.exists():
            while not tree.sweep(_ENTRIES):
                if this_round is not None and this_round.over:
                    return False
            for usage in tree.measure(step=_ENTRIES):
                size, entries = usage.bytes, usage.files
                if this_round is not None and this_round.over:
                    return False
    except FileError as error:
        log.error("workspace_not_counted workspace=%s: %s", workspace.public_id, type(error).__name__)
        return False
    with transaction.atomic():
        _lock_total(workspace.tenant_id)
        rows = Workspace.objects.filter(pk=row, revision=workspace.revision)
        updated = rows.update(bytes=size, files=entries, operations=0, revision=F("revision") + 1, counted_at=Now())
        _sum_up(workspace.tenant_id)
    return bool(updated)


def _lock_total(tenant: int) -> None:
    """Operations reserve in the total first, so none changes a workspace of the tenant until the transaction ends."""
    WorkspaceTotal.objects.filter(tenant_id=tenant).update(workspaces=F("workspaces"))


def _sum_up(tenant: int) -> None:
    """Correct the tenant's total, which ``_lock_total`` has locked."""
    rows = Workspace.objects.filter(tenant_id=tenant)
    # Two queries, because there is an index for each.
    sums = [part.aggregate(sum=Coalesce(Sum("bytes"), 0))["sum"] for part in (rows.filter(removed_at=None), rows & _removed())]
    WorkspaceTotal.objects.filter(tenant_id=tenant).update(bytes=sum(sums))
