"""The audit in the admin: read, narrowed, never changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.core.tenancy import audit, audit_chain, audit_export, tenants
from sessions_app.models import AuditRecord, Staff, StaffRole, Tenant
from tests.faces.admin.pages import html, url
from tests.faces.console.conftest import body

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_audit_is_searched_and_filtered(eve: Client, acme: Tenant) -> None:
    globex, _ = tenants.create("globex")
    audit.record(actor="admin:ann", action=audit.Action.TRANSCRIPT_READ, target="session sess_1", tenant=acme, address="10.1.1.1")
    audit.record(actor="shell:bob", action=audit.Action.KEY_REVOKED, target="key ah_2", tenant=globex)
    page = url("auditrecord", "changelist")
    for query in ({"q": "ann"}, {"q": "sess_1"}, {"q": "10.1.1.1"}, {"tenant": "acme"}, {"action": "transcript_read"}):
        found = html(eve.get(page, query))
        assert "admin:ann" in found, query
        assert "shell:bob" not in found, query
    assert "admin:ann" not in html(eve.get(page, {"until": "2001-01-01"}))
    assert "admin:ann" in html(eve.get(page, {"since": "2001-01-01"}))


def test_no_row_can_be_added_changed_or_deleted(eve: Client, acme: Tenant) -> None:
    row = AuditRecord.objects.get(action="tenant_created")
    assert eve.get(url("auditrecord", "add")).status_code == 403
    assert eve.post(url("auditrecord", "change", row), {"actor": "nobody"}).status_code == 403
    assert eve.post(url("auditrecord", "delete", row), {"post": "yes"}).status_code == 403
    row.refresh_from_db()
    assert row.actor == "server"


def test_html_in_audit_records_is_escaped(eve: Client, acme: Tenant) -> None:
    audit.record(actor="a", action=audit.Action.KEY_ISSUED, target="<script>x</script>", detail="<b>bold</b>")
    page = html(eve.get(url("auditrecord", "changelist")))
    assert "<script>x" not in page
    assert "<b>bold" not in page


def test_a_download_of_the_audit_is_written_while_it_is_read(eve: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        audit.record(actor="x", action=audit.Action.KEY_ISSUED, target=f"key {number}", detail="d" * 2000)
    audit_chain.link_new()
    read_links, lines = [], audit_export.lines

    def counted(*given: Any, **named: Any) -> Iterator[dict[str, Any]]:
        for line in lines(*given, **named):
            read_links.append(line["link"])
            yield line

    monkeypatch.setattr(audit_export, "lines", counted)
    answer: Any = eve.get("/admin/sessions_app/auditrecord/download/")

    async def read() -> tuple[int, int]:
        first = await anext(aiter(answer))
        begun = len(read_links)
        return begun, len(first) + len(b"".join([chunk async for chunk in answer]))

    begun, size = asyncio.run(read())
    assert begun < 200, "the rest waits for the reader"
    assert len(read_links) >= 300
    assert size > 300 * 2000


def test_an_auditor_verifies_the_audit_in_the_browser_and_takes_the_verdict_away(acme: Tenant) -> None:
    audit.record(actor="x", action=audit.Action.KEY_ISSUED, target="key 1", tenant=acme)
    audit_chain.link_new()
    Staff.objects.create(user=User.objects.create_user("ada"), role=StaffRole.AUDITOR)
    auditor = Client()
    auditor.force_login(User.objects.get(username="ada"))
    assert url("auditrecord", "verify") in html(auditor.get(url("auditrecord", "changelist")))
    answer = auditor.get(url("auditrecord", "verify"))
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="audit-verification-')
    assert body(answer).decode().splitlines()[-1].startswith("Nothing was changed: ")
    assert AuditRecord.objects.filter(action="audit_verified", actor="admin:ada").count() == 1
    AuditRecord.objects.filter(target="key 1").update(detail="other")
    found = body(auditor.get(url("auditrecord", "verify"))).decode()
    assert "changed: acme number " in found
    assert "Nothing was changed" not in found


def test_staff_of_one_tenant_verify_its_chain_only(acme: Tenant) -> None:
    globex, _ = tenants.create("globex")
    for tenant in (acme, globex):
        audit.record(actor="x", action=audit.Action.KEY_ISSUED, target=f"key of {tenant.slug}", tenant=tenant)
    audit_chain.link_new()
    AuditRecord.objects.filter(target="key of globex").update(detail="other")
    staff = Staff.objects.create(user=User.objects.create_user("ada"), role=StaffRole.AUDITOR, limited=True)
    staff.tenants.set([acme])
    limited = Client()
    limited.force_login(staff.user)
    found = body(limited.get(url("auditrecord", "verify"))).decode()
    assert "globex" not in found
    assert "Nothing was changed" in found
