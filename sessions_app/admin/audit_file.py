"""The audit as a file: JSON Lines of the linked records that an account sees, recorded as an export."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from sessions_app.accounts.people import account, actor, address
from sessions_app.core.tenancy import audit, audit_export, rights
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import Tenant


def download(request: HttpRequest) -> StreamingHttpResponse:
    by = account(request)
    if not rights.as_staff(by, Right.EXPORT_AUDIT):
        raise PermissionDenied
    tenants: list[Tenant | None] = [None]
    if by.staff_tenants is not None:
        tenants = list(rights.of_staff(by, Right.EXPORT_AUDIT, Tenant.objects.order_by("slug"), "pk"))
    for tenant in tenants:
        audit.record(
            actor=actor(request), address=address(request), action=audit.Action.AUDIT_EXPORTED, target="audit", tenant=tenant
        )

    def lines() -> Iterator[str]:
        for tenant in tenants:
            for line in audit_export.lines(tenant=tenant):
                yield f"{json.dumps(line, ensure_ascii=False)}\n"

    name = f"audit-{timezone.now():%Y-%m-%d}.jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(lines(), content_type="application/jsonl; charset=utf-8", headers=headers)
