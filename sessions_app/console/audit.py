"""The audit of a tenant, for its owners: reading it, and taking it away as a file."""

from __future__ import annotations

import json
from functools import partial
from typing import IO

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from sessions_app.accounts.people import actor, address
from sessions_app.console import paging
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core.base.piping import Piped
from sessions_app.core.tenancy import audit, audit_export, rights
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Tenant
from sessions_app.presentation import downloads


@require_safe
@for_members
def index(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_AUDIT)
    listed = paging.page(request, lambda before, most: audit.newest(tenant, most, before=before), lambda record: record.pk)
    return tenant_page(request, by, tenant, "audit", "agenthost/console/audit.html", {"listed": listed})


@require_POST
@for_members
def download(request: HttpRequest, by: Account, slug: str) -> HttpResponseBase:
    """The linked records as JSON Lines. Recorded, so not by following a link."""
    tenant = rights.own_tenant(by, slug, Right.EXPORT_AUDIT)
    audit.record(actor=actor(request), address=address(request), action=Action.AUDIT_EXPORTED, target="audit", tenant=tenant)
    return downloads.response(
        Piped(partial(_write, tenant), "audit-export"), f"audit-{tenant.slug}-{timezone.now():%Y-%m-%d}.jsonl"
    )


def _write(tenant: Tenant, out: IO[bytes]) -> None:
    for line in audit_export.lines(tenant=tenant):
        out.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
