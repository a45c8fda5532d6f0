"""The tenant's audit in the console: read by owners, page by page, and taken away."""

from __future__ import annotations

import json

import pytest

from sessions_app.core.tenancy import audit, audit_chain
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import AuditRecord, Role, Tenant
from tests.faces.admin.conversations import make_tenant
from tests.faces.console.conftest import As, body, text

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_owner_reads_all_records_of_the_tenant_page_by_page_and_takes_them_away(acme: Tenant, as_role: As) -> None:
    audit.record(actor="key:ah_1", action=Action.KEY_REFUSED, target="<b>oldest</b>", tenant=acme, address="192.0.2.77")
    for number in range(55):
        audit.record(actor="x", action=Action.TRANSCRIPT_READ, target=f"session {number}", tenant=acme)
    audit.record(actor="x", action=Action.KEY_ISSUED, target="of another tenant", tenant=make_tenant("other"))
    owner = as_role(Role.OWNER)
    assert 'href="/console/acme/audit/">All records</a>' in text(owner.get("/console/acme/"))
    first = text(owner.get("/console/acme/audit/"))
    assert "session 54" in first
    assert "192.0.2.77" not in first
    following = first.partition('<nav class="pager"')[2].partition('href="')[2].partition('"')[0]
    second = text(owner.get(f"/console/acme/audit/{following}"))
    assert "192.0.2.77" in second
    assert "key refused" in second
    assert "&lt;b&gt;oldest" in second
    assert "of another tenant" not in first + second
    audit_chain.link_new()
    file = owner.post("/console/acme/audit/file/")
    assert file["Content-Disposition"].startswith('attachment; filename="audit-acme-')
    targets = [json.loads(line)["target"] for line in body(file).splitlines()]
    assert [target for target in targets if target in ("<b>oldest</b>", "session 0")] == ["<b>oldest</b>", "session 0"]
    assert "of another tenant" not in targets
    assert AuditRecord.objects.filter(action="audit_exported", tenant=acme, actor="member:owner").count() == 1


def test_only_owners_have_the_audit_in_their_navigation(acme: Tenant, as_role: As) -> None:
    assert "/console/acme/audit/" in text(as_role(Role.OWNER).get("/console/acme/keys/"))
    assert "/console/acme/audit/" not in text(as_role(Role.DEVELOPER).get("/console/acme/keys/"))
