"""The audit: rows that say who did what, whatever becomes of what they speak of."""

from __future__ import annotations

import re

import pytest

from sessions_app.core.tenancy import audit, tenants
from sessions_app.models import AuditRecord, Tenant
from tests.paths import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_row_says_who_did_what_to_what_when_and_from_where() -> None:
    tenant, _ = tenants.create("acme")
    row = audit.record(
        actor="admin:eve",
        action=audit.Action.TRANSCRIPT_READ,
        target="session sess_1",
        tenant=tenant,
        address="10.0.0.9",
        detail="messages, page 1 of 1",
    )
    stored = AuditRecord.objects.get(pk=row.pk)
    assert (stored.actor, stored.action, stored.target) == ("admin:eve", "transcript_read", "session sess_1")
    assert (stored.tenant_id, stored.address, stored.detail) == (tenant.pk, "10.0.0.9", "messages, page 1 of 1")
    assert stored.at is not None


def test_names_too_long_for_their_column_are_cut_and_not_refused() -> None:
    row = audit.record(actor="a" * 500, action=audit.Action.KEY_ISSUED, target="t" * 500, address="x" * 500)
    row.refresh_from_db()
    assert (len(row.actor), len(row.target), len(row.address)) == (200, 300, 64)


def test_a_row_outlives_its_tenant() -> None:
    tenant = Tenant.objects.create(slug="gone")
    row = audit.record(actor="server", action=audit.Action.TENANT_CREATED, target="tenant gone", tenant=tenant)
    tenant_id = tenant.pk
    tenant.delete()
    row.refresh_from_db()
    assert (row.tenant_id, row.target) == (tenant_id, "tenant gone")


def test_every_action_fits_its_column() -> None:
    longest = AuditRecord._meta.get_field("action").max_length
    assert longest is not None
    assert all(len(action.value) <= longest for action in audit.Action)


def test_the_page_about_the_audit_lists_every_kind_of_record_and_no_other() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    kinds = page.partition("## Kinds of records")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`([a-z_]+)`", kinds)) == sorted(action.value for action in audit.Action)
