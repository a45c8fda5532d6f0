"""The audit as lines for other systems, in the order in which records were linked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sessions_app.core.base.caller import AUDIT, Caller
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import AuditLink, AuditRecord, Tenant

_BATCH = 1000
PAGE = 200


def page_for(caller: Caller, after: int) -> list[dict[str, Any]]:
    """For a client: the next records of its tenant. Recorded as an export, once an hour."""
    caller.require(AUDIT)
    if caller.token or not caller.sight.is_whole:
        raise NotPossible("the audit is of the whole tenant, so a token or a key that is limited to agents cannot read it")
    api_audit.read(caller, Action.AUDIT_EXPORTED, "audit")
    return list(islice(lines(after, Tenant.objects.get(pk=caller.tenant), PAGE), PAGE))


def lines(after: int = 0, tenant: Tenant | None = None, batch_of: int = _BATCH) -> Iterator[dict[str, Any]]:
    """All linked records after this link, oldest first. ``link`` of a line is where a later export continues."""
    slugs: dict[int | None, str | None] = {None: None}
    while True:
        links = AuditLink.objects.filter(pk__gt=after).order_by("pk")
        if tenant is not None:
            links = links.filter(chain=tenant.pk)
        batch = list(links[:batch_of])
        if not batch:
            return
        records = AuditRecord.objects.in_bulk([link.record for link in batch])
        missing = {row.tenant_id for row in records.values() if row.tenant_id is not None} - slugs.keys()
        slugs |= dict.fromkeys(missing)
        slugs |= dict(Tenant.objects.filter(pk__in=missing).values_list("pk", "slug"))
        for link in batch:
            after = link.pk
            record = records.get(link.record)
            # A record that was deleted is missing here; verify_audit names it.
            if record is not None:
                yield _line(link, record, slugs[record.tenant_id])


def _line(link: AuditLink, record: AuditRecord, slug: str | None) -> dict[str, Any]:
    return {
        "link": link.pk,
        "chain": link.chain,
        "number": link.number,
        "record": record.pk,
        "at": record.at.isoformat(),
        "tenant": slug,
        "actor": record.actor,
        "action": record.action,
        "target": record.target,
        "address": record.address,
        "detail": record.detail,
        "hash": link.hash,
    }
