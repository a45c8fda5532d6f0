"""The audit as a file, and its verification: of the records that an account sees. Both are recorded."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from functools import partial
from typing import IO

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from sessions_app.accounts.people import account, actor, address
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.piping import Piped
from sessions_app.core.tenancy import audit, audit_chain, audit_export, rights
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import AuditLink, Tenant
from sessions_app.presentation import downloads

MOST_BREAKS = 1000
AT_ONCE = 4
_verifying = threading.BoundedSemaphore(AT_ONCE)


def download(request: HttpRequest) -> StreamingHttpResponse:
    tenants = _tenants(request)
    _record(request, tenants, Action.AUDIT_EXPORTED)

    def write(out: IO[bytes]) -> None:
        for tenant in tenants:
            for line in audit_export.lines(tenant=tenant):
                out.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())

    return downloads.response(Piped(write, "audit-export"), f"audit-{timezone.now():%Y-%m-%d}.jsonl")


def verify(request: HttpRequest) -> StreamingHttpResponse:
    """A text with each place where the audit is not what was written, and the verdict as its last line.

    It is computed while it is read; a process computes a few at a time, because each reads the whole audit.
    """
    tenants = _tenants(request)
    if not _verifying.acquire(blocking=False):
        raise NotPossible(f"the audit is being verified {AT_ONCE} times already; wait until one of them is done")
    try:
        _record(request, tenants, Action.AUDIT_VERIFIED)
        at = timezone.now()
        body = Piped(partial(_write_verdict, at, tenants), "audit-verification", _verifying.release)
    except BaseException:
        _verifying.release()
        raise
    return downloads.response(body, f"audit-verification-{at:%Y-%m-%d}.txt")


def _write_verdict(at: datetime, tenants: list[Tenant | None], out: IO[bytes]) -> None:
    only = [tenant.pk for tenant in tenants if tenant is not None] if None not in tenants else None
    which = "all chains" if only is None else ", ".join(tenant.slug for tenant in tenants if tenant is not None)
    out.write(f"Verification of the audit ({which}), begun {at:%Y-%m-%d %H:%M:%S} UTC\n".encode())
    count = 0
    for found in audit_chain.verify(only):
        count += 1
        if count > MOST_BREAKS:
            break
        out.write(f"{found}\n".encode())
    linked = AuditLink.objects.all() if only is None else AuditLink.objects.filter(chain__in=only)
    shown = f"more than {MOST_BREAKS} breaks" if count > MOST_BREAKS else f"{count} break{'' if count == 1 else 's'}"
    out.write(f"{shown if count else 'Nothing was changed'}: {linked.count()} linked records.\n".encode())


def _tenants(request: HttpRequest) -> list[Tenant | None]:
    """Those whose audit the account may take away; None: all of the server."""
    by = account(request)
    if not rights.as_staff(by, Right.EXPORT_AUDIT):
        raise PermissionDenied
    if by.staff_tenants is None:
        return [None]
    return list(rights.of_staff(by, Right.EXPORT_AUDIT, Tenant.objects.order_by("slug"), "pk"))


def _record(request: HttpRequest, tenants: list[Tenant | None], action: Action) -> None:
    for tenant in tenants:
        audit.record(actor=actor(request), address=address(request), action=action, target="audit", tenant=tenant)
