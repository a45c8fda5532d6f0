"""Tenants in the admin: made, changed, suspended, resumed."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.tenancy import keys, tenants
from sessions_app.core.turns import revoking
from sessions_app.models import AuditRecord, Tenant, TenantCounter
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_created_tenant_can_be_used_immediately(eve: Client) -> None:
    response = eve.post(url("tenant", "add"), {"slug": "acme", "title": "Acme", "allowed_agents": ["demo"]}, follow=True)
    # What comes next is on the page that is shown.
    assert "invite its owner" in html(response)
    assert "Invite…" in html(response)
    tenant = Tenant.objects.get()
    assert (tenant.slug, tenant.title, tenant.allowed_agents) == ("acme", "Acme", ["demo"])
    assert TenantCounter.objects.filter(tenant_id=tenant.pk).exists()
    row = AuditRecord.objects.get(action="tenant_created")
    assert (row.actor, row.address) == ("admin:eve", "10.0.0.9")


@pytest.mark.parametrize("slug", ["", "Acme", "acme"])
def test_an_invalid_or_used_slug_shows_its_error(eve: Client, acme: Tenant, slug: str) -> None:
    assert "errorlist" in html(eve.post(url("tenant", "add"), {"slug": slug, "title": ""}))
    assert Tenant.objects.count() == 1


def test_title_and_agents_can_be_changed_and_the_slug_cannot(eve: Client, acme: Tenant) -> None:
    eve.post(url("tenant", "change", acme), {"slug": "other", "title": "Acme Ltd.", "allowed_agents": ["demo"]})
    acme.refresh_from_db()
    assert (acme.slug, acme.title, acme.allowed_agents) == ("acme", "Acme Ltd.", ["demo"])
    eve.post(url("tenant", "change", acme), {"title": "Acme Ltd."})
    acme.refresh_from_db()
    assert acme.allowed_agents is None
    assert AuditRecord.objects.filter(action="tenant_changed", actor="admin:eve").count() == 2


def test_a_removed_agent_stays_checked_until_an_operator_unchecks_it(eve: Client, acme: Tenant) -> None:
    tenants.change(acme, title="", allowed_agents=["retired"], actor="t")
    assert "retired (not on this server now)" in html(eve.get(url("tenant", "change", acme)))
    eve.post(url("tenant", "change", acme), {"title": "Acme", "allowed_agents": ["retired", "demo"]})
    acme.refresh_from_db()
    assert sorted(acme.allowed_agents or []) == ["demo", "retired"]


def test_a_tenant_is_suspended_after_a_confirmation_and_resumed(eve: Client, acme: Tenant) -> None:
    issued = keys.issue(acme, name="n", scopes=["*"], expires_at=None, allowed_agents=None, actor="t")
    assert "running turns are cancelled" in html(eve.get(url("tenant", "suspend", acme)))
    assert keys.authenticate(issued.raw).tenant == acme.pk
    assert "Suspended since" in html(eve.post(url("tenant", "suspend", acme), follow=True))
    with pytest.raises(NotAuthenticated):
        keys.authenticate(issued.raw)
    assert "Resume acme?" in html(eve.get(url("tenant", "resume", acme)))
    eve.post(url("tenant", "resume", acme))
    assert keys.authenticate(issued.raw).tenant == acme.pk
    acts = AuditRecord.objects.filter(tenant=acme, actor="admin:eve").order_by("id").values_list("action", "address")
    assert list(acts) == [("tenant_suspended", "10.0.0.9"), ("tenant_resumed", "10.0.0.9")]


def test_many_tenants_are_suspended_after_a_confirmation(eve: Client, acme: Tenant) -> None:
    globex, _ = tenants.create("globex")
    chosen = {"action": "suspend_selected", "_selected_action": [acme.pk, globex.pk]}
    assert "Suspend 2 tenants?" in html(eve.post(url("tenant", "changelist"), chosen))
    assert not Tenant.objects.exclude(suspended_at=None).exists()
    eve.post(url("tenant", "changelist"), {**chosen, "confirmed": "yes"})
    assert Tenant.objects.exclude(suspended_at=None).count() == 2
    eve.post(url("tenant", "changelist"), {"action": "resume_selected", "_selected_action": [acme.pk, globex.pk]})
    assert not Tenant.objects.exclude(suspended_at=None).exists()


def test_the_list_counts_keys_that_are_neither_revoked_nor_expired(eve: Client, acme: Tenant) -> None:
    live, expired, revoked = (
        keys.issue(acme, name=name, scopes=["*"], expires_at=None, allowed_agents=None, actor="tests", address="").key
        for name in ("live", "of a chat", "lost")
    )
    keys.expire(expired, actor="tests")
    revoking.revoke_key(revoked, actor="tests")
    page = html(eve.get(url("tenant", "changelist")))
    assert 'class="field-active_keys">1<' in page, live


def test_a_tenant_cannot_be_deleted_here(eve: Client, acme: Tenant) -> None:
    assert eve.post(url("tenant", "delete", acme), {"post": "yes"}).status_code == 403
    assert "delete_selected" not in html(eve.get(url("tenant", "changelist")))


def test_an_operator_with_view_permission_cannot_suspend(reader: Client, acme: Tenant) -> None:
    assert "Suspend" not in html(reader.get(url("tenant", "change", acme)))
    assert reader.post(url("tenant", "suspend", acme)).status_code == 403
    assert reader.post(url("tenant", "resume", acme)).status_code == 403
    assert reader.post(url("tenant", "change", acme), {"title": "x"}).status_code == 403
    acme.refresh_from_db()
    assert (acme.suspended_at, acme.title) == (None, "")


def test_actions_on_missing_rows_are_404(eve: Client) -> None:
    for page in ("suspend", "resume"):
        assert eve.post(f"/admin/sessions_app/tenant/4711/{page}/").status_code == 404


def test_only_operators_can_use_the_admin(client: Client, acme: Tenant) -> None:
    for page in (url("tenant", "changelist"), url("tenant", "suspend", acme), url("apikey", "add")):
        response = client.get(page)
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")


def test_the_overview_has_the_products_name_and_style(eve: Client) -> None:
    page = html(eve.get("/admin/"))
    assert "Agenthost" in page
    assert "Django administration" not in page
    assert "/agenthost/admin.css" in page


def test_limits_and_retention_are_set_and_usage_is_shown(eve: Client, acme: Tenant) -> None:
    page = html(eve.get(url("tenant", "change", acme)))
    assert "Turns that wait for their client do not count. Empty: no limit." in page
    assert "Usage" in page
    given = {"title": "", "max_sessions": "7", "max_turns_at_once": "0", "session_retention_days": "30"}
    eve.post(url("tenant", "change", acme), given)
    acme.refresh_from_db()
    assert (acme.max_sessions, acme.max_turns_at_once, acme.max_stored_bytes, acme.session_retention_days) == (7, 0, None, 30)
    assert "<td>sessions</td><td>0</td><td>7</td>" in html(eve.get(url("tenant", "change", acme)))
    row = AuditRecord.objects.get(action="tenant_changed", actor="admin:eve")
    assert row.detail == "turns_at_once none -> 0; sessions none -> 7; retention forever -> 30 days"


@pytest.mark.parametrize("given", [{"max_sessions": "-1"}, {"session_retention_days": "0"}, {"max_stored_bytes": "many"}])
def test_an_invalid_limit_shows_its_error(eve: Client, acme: Tenant, given: dict[str, str]) -> None:
    assert "errorlist" in html(eve.post(url("tenant", "change", acme), {"title": "", **given}))
    acme.refresh_from_db()
    assert acme.max_sessions is None


def test_a_tenant_is_created_with_its_limits(eve: Client) -> None:
    eve.post(url("tenant", "add"), {"slug": "acme", "title": "", "max_tokens_per_day": "5000", "session_retention_days": "1"})
    tenant = Tenant.objects.get()
    assert (tenant.max_tokens_per_day, tenant.session_retention_days) == (5000, 1)


def test_a_suspension_reports_turns_that_the_sweep_still_has_to_stop(
    eve: Client, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoking, "cancel_tenant", lambda _tenant, _until: 1)
    page = html(eve.post(url("tenant", "suspend", acme), follow=True))
    assert "1 turn is locked by other transactions and not stopped yet" in page
