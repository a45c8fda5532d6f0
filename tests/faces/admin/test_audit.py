"""The audit in the admin: read, narrowed, never changed."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.core.tenancy import audit, tenants
from sessions_app.models import AuditRecord, Tenant
from tests.faces.admin.pages import html, url

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
