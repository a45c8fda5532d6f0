"""Deletes a tenant in batches, and ends with a signed certificate of what was deleted.

Every batch is a transaction that also stores the progress, so the work continues after a crash where it was: by the command that
began it, or by housekeeping. What stays: the audit, this deletion's row, and the tenant's row without its name.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from typing import Any

from django.apps import apps
from django.db import connection, transaction
from django.db.models import Model, QuerySet, Sum
from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base import journal_keys
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers, search_index, stored_messages
from sessions_app.core.sessions import deleting
from sessions_app.core.sessions.removing import BATCH, TABLES_OF_SESSION, remove_session
from sessions_app.core.tenancy import audit, certificates
from sessions_app.core.terminals import disposing
from sessions_app.core.terminals import services as terminals
from sessions_app.core.workspaces import upkeep
from sessions_app.models import (
    ApiKey,
    AuditRecord,
    Event,
    JournalGap,
    Session,
    Tenant,
    TenantCounter,
    TenantDeletion,
    Terminal,
    Workspace,
)

log = logging.getLogger(__name__)

KEPT: tuple[type[Model], ...] = (AuditRecord, TenantDeletion)
"""Tables with rows of tenants that stay: they say what was done, and contain nothing of users or models."""
_STEPS_OWN: tuple[type[Model], ...] = (Session, Terminal, Workspace, ApiKey, TenantCounter, Event, JournalGap)
"""Tables whose rows have a step of their own; the rows of all others are deleted by their tenant."""
_SESSIONS = 100
_AT_ONCE = 10
"""Deletions that one round continues."""


def begin(tenant: Tenant, *, actor: str, address: str = "", until: float | None = None) -> TenantDeletion:
    """Suspend the tenant and note that it is to be deleted; the same row if it was begun before. Cannot be taken back.

    ``until``: as for ``turns.suspend_tenant``.
    """
    with transaction.atomic():
        row, is_new = TenantDeletion.objects.get_or_create(
            tenant_id=tenant.pk, defaults={"public_id": new_id("del"), "slug": tenant.slug, "requested_by": actor[:200]}
        )
        if is_new:
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.TENANT_DELETION_BEGUN,
                target=f"tenant {tenant.slug}",
                tenant=tenant,
                detail=row.public_id,
            )
    turns.suspend_tenant(tenant, actor=actor, address=address, until=until)
    row.refresh_from_db()
    return row


def remaining(deletion: TenantDeletion, most: int | None = None) -> int:
    """The number of sessions that are left to delete, counted up to ``most``."""
    rows = Session.with_deleted.filter(tenant_id=deletion.tenant_id)
    return rows.count() if most is None else rows.order_by()[:most].count()


def deleted(deletion: TenantDeletion) -> dict[str, int]:
    """The rows deleted so far, by kind."""
    return dict(sorted(_counts(deletion).items()))


def advance(deletion: TenantDeletion, seconds: float) -> bool:
    """Delete for at most about this time; True if the deletion is finished.

    False without progress if the volume of the workspaces is not there, or another process is at the same row.
    """
    this_round = Round(seconds)
    tenant = deletion.tenant_id
    if TenantDeletion.objects.filter(pk=deletion.pk, finished_at__isnull=False).exists():
        return True
    steps = (_sessions, _terminals, _workspaces, _other_tables, _keys, _journal)
    return all(step(deletion.pk, tenant, this_round) for step in steps) and _finish(deletion.pk)


def advance_all(seconds: float) -> bool:
    """Continue the oldest deletions that were begun, each for at most about this time.

    True if one of them used all of its time: then it is worth going on at once. One that is kept from its rows, or from the
    volume of the workspaces, ends at once.
    """
    goes_on = False
    for row in TenantDeletion.objects.filter(finished_at=None).order_by("pk")[:_AT_ONCE]:
        began = time.monotonic()
        if advance(row, seconds):
            log.info("tenant_deleted tenant=%s deletion=%s", row.tenant_id, row.public_id)
        else:
            goes_on |= time.monotonic() - began >= seconds
    return goes_on


# --- steps: each returns whether nothing is left for it ---


def _sessions(deletion: int, tenant: int, this_round: Round) -> bool:
    counted = TenantDeletion.objects.values_list("session", flat=True).get(pk=deletion)
    if counted is not None and journal_keys.is_session(counted):
        # A crash came between its counting and its end.
        remove_session(counted)

    def delete(row: int) -> int:
        deleting.delete_of_tenant(row)
        _count_session(deletion, row)
        return remove_session(row)

    while not this_round.over:
        # Each of the two has an index.
        live = Session.objects.filter(tenant_id=tenant).order_by("-created_at", "-pk")
        gone = Session.with_deleted.filter(tenant_id=tenant, deleted_at__isnull=False)
        batch = _first(live, this_round) or _first(gone, this_round)
        if not batch:
            break
        this_round.for_each(batch, delete)
    this_round.report("sessions of a deleted tenant")
    return not Session.with_deleted.filter(tenant_id=tenant).exists() and search_index.purge_removed(this_round)


def _first(rows: QuerySet[Session], this_round: Round) -> list[int]:
    return list(rows.exclude(pk__in=list(this_round.skipped)).values_list("pk", flat=True)[:_SESSIONS])


def _count_session(deletion: int, session: int) -> None:
    """Add the session to the counts and to the digest, once: nothing is added to a deleted session any more."""
    with transaction.atomic():
        progress = TenantDeletion.objects.select_for_update().get(pk=deletion)
        if progress.session == session:
            return
        counts = _counts(progress)
        counts["session"] += 1
        with connection.cursor() as cursor:
            for table in TABLES_OF_SESSION:
                # The names of the tables are constants.
                cursor.execute(f"select count(*) from {table} where session_id = %s", [session])
                counts[table.removeprefix("sessions_app_")] += cursor.fetchone()[0]
            cursor.execute("select count(*) from event where session_id = %s", [session])
            counts["event"] += cursor.fetchone()[0]
        digest = hashlib.sha256(progress.digest.encode() + stored_messages.digest(session)).hexdigest()
        _store(deletion, counts, digest=digest, session=session)


def _terminals(deletion: int, tenant: int, this_round: Round) -> bool:
    while not this_round.over:
        row = Terminal.with_disposed.filter(tenant_id=tenant).order_by("pk").first()
        if row is None:
            return True
        if row.disposed_at is None:
            disposing.dispose_row(row.pk)
        with transaction.atomic():
            progress = TenantDeletion.objects.select_for_update().get(pk=deletion)
            # The numbers of terminals are far above those of sessions, so one column remembers both.
            key = journal_keys.of_terminal(row.pk)
            if progress.session != key:
                _store(deletion, _counts(progress) + Counter(terminal=1), session=key)
        terminals.remove(row.pk)
    return False


def _workspaces(deletion: int, tenant: int, this_round: Round) -> bool:
    live = Workspace.objects.filter(tenant_id=tenant, removed_at=None)
    with transaction.atomic():
        progress = TenantDeletion.objects.select_for_update().get(pk=deletion)
        sums = live.aggregate(bytes=Sum("bytes"), files=Sum("files"))
        if found := live.update(removed_at=Now()):
            counts = Counter(workspace=found, workspace_files=sums["files"] or 0, workspace_bytes=sums["bytes"] or 0)
            _store(deletion, _counts(progress) + counts)
    while not this_round.over:
        row = Workspace.objects.filter(tenant_id=tenant).exclude(pk__in=list(this_round.skipped)).first()
        if row is None:
            return not this_round.skipped
        upkeep.remove(row.pk, this_round)
    return False


def _other_tables(deletion: int, tenant: int, this_round: Round) -> bool:
    for model in of_tenants():
        if model in KEPT or model in _STEPS_OWN:
            continue
        while not _delete_batch(deletion, model, {"tenant_id": tenant}):
            if this_round.over:
                return False
    return True


def of_tenants() -> list[type[Model]]:
    """All tables with rows of tenants, those that refer to others before these."""
    models = apps.get_app_config("sessions_app").get_models()
    return [each for each in reversed(list(models)) if any(field.attname == "tenant_id" for field in each._meta.concrete_fields)]


def _keys(deletion: int, tenant: int, this_round: Round) -> bool:
    while not _delete_batch(deletion, ApiKey, {"tenant_id": tenant}):
        if this_round.over:
            return False
    return True


def _delete_batch(deletion: int, model: type[Model], of: dict[str, Any]) -> bool:
    """Delete some rows and count them; True if none are left."""
    with transaction.atomic():
        progress = TenantDeletion.objects.select_for_update().get(pk=deletion)
        pks = list(model._base_manager.filter(**of).order_by("pk").values_list("pk", flat=True)[:BATCH])
        if not pks:
            return True
        model._base_manager.filter(pk__in=pks).delete()
        name = model._meta.db_table.removeprefix("sessions_app_")
        _store(deletion, _counts(progress) + Counter({name: len(pks)}))
    return len(pks) < BATCH


def _journal(_deletion: int, tenant: int, _this_round: Round) -> bool:
    """The tenant's own events and its counter, at the very end: what appends needs it."""
    journal.forget_session(journal_keys.of_tenant(tenant))
    journal.forget_session(journal_keys.of_watches(tenant))
    with connection.cursor() as cursor:
        cursor.execute("delete from journal_gap where tenant_id = %s", [tenant])
        cursor.execute("delete from tenant_counter where tenant_id = %s", [tenant])
    return True


def _finish(deletion: int) -> bool:
    with transaction.atomic():
        row = TenantDeletion.objects.select_for_update().get(pk=deletion)
        if row.finished_at is not None:
            return True
        now = live_workers.database_clock()
        tenant = Tenant.objects.select_for_update().get(pk=row.tenant_id)
        certificate = certificates.sign(
            {
                "statement": "All data of this tenant were deleted from this installation's database and workspaces.",
                "deletion": row.public_id,
                "tenant": row.slug,
                "requestedBy": row.requested_by,
                "requestedAt": row.requested_at.isoformat(),
                "finishedAt": now.isoformat(),
                "deletedRows": dict(sorted(_counts(row).items())),
                "sessionsSha256": row.digest,
                "kept": ["audit records", "this certificate", "backups, until they expire"],
            }
        )
        TenantDeletion.objects.filter(pk=deletion).update(finished_at=now, certificate=certificate, session=None)
        Tenant.objects.filter(pk=tenant.pk).update(slug=f"deleted-{tenant.pk}", title="", allowed_agents=[])
        audit.record(
            actor=audit.SERVER,
            action=audit.Action.TENANT_DELETED,
            target=f"tenant {row.slug}",
            tenant=tenant,
            detail=f"{row.public_id}; certificate sha256 {hashlib.sha256(certificate.encode()).hexdigest()}",
        )
    return True


def _counts(row: TenantDeletion) -> Counter[str]:
    return Counter(exact_json.loads(row.counts))


def _store(deletion: int, counts: Counter[str], **more: Any) -> None:
    TenantDeletion.objects.filter(pk=deletion).update(counts=exact_json.dumps(dict(counts)), **more)
