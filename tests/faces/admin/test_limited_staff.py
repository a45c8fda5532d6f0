"""Staff of some tenants: nothing of any other tenant is on any page, in any list, count, suggestion or search."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.admin import sessions
from sessions_app.core.records import search_index
from sessions_app.core.tenancy import audit, audit_chain, invitations, keys
from sessions_app.models import ApiKey, AuditRecord, ModelUse, Session, Staff, StaffRole, Tenant
from tests.faces.admin.conversations import make_session, make_tenant, make_turn, say
from tests.faces.admin.pages import html, url
from tests.faces.console.conftest import body

pytestmark = pytest.mark.django_db(transaction=True)

LISTS = ("tenant", "apikey", "session", "modeluse", "auditrecord", "workspace", "terminal", "tenantdeletion")


@pytest.fixture
def hidden(transactional_db: None) -> Tenant:
    """A tenant with everything that a page could show, each with the tenant's name in it."""
    tenant = make_tenant("hidden-corp")
    _fill(tenant)
    audit.record(actor="server", action=audit.Action.INSTALLATION_KEYS_ACCEPTED, target="of hidden-corp server")
    return tenant


@pytest.fixture
def shown(transactional_db: None) -> Tenant:
    tenant = make_tenant("shown-corp")
    _fill(tenant)
    return tenant


def _fill(tenant: Tenant) -> None:
    keys.issue(tenant, name=f"key of {tenant.slug}", scopes=["*"], expires_at=None, allowed_agents=None, actor="x")
    session = make_session(tenant, public_id=f"sess_{tenant.slug}")
    turn = make_turn(session, public_id=f"turn_{tenant.slug}")
    say(session, "user", f"words of {tenant.slug}", turn)
    ModelUse.objects.create(
        tenant_id=tenant.pk, day="2026-01-01", session=session.public_id, agent="a", model="m", purpose="turn", calls=1,
        input_tokens=1, output_tokens=1, cache_read_tokens=0,
    )  # fmt: skip


@pytest.fixture
def limited(shown: Tenant, hidden: Tenant) -> Client:
    staff = Staff.objects.create(
        user=User.objects.create_user("lim"), role=StaffRole.OPERATOR, limited=True, reads_transcripts=True
    )
    staff.tenants.set([shown])
    client = Client()
    client.force_login(staff.user)
    return client


def test_no_list_search_filter_or_form_shows_another_tenant(limited: Client, hidden: Tenant) -> None:
    for model in LISTS:
        queries: list[dict[str, str]] = [{}, {"q": "hidden"}, {"q": "turn_hidden-corp"}]
        if model not in ("tenant", "tenantdeletion"):
            queries.append({"tenant": "hidden-corp"})
        for query in queries:
            page = html(limited.get(url(model, "changelist"), query))
            for echoed in ('value="hidden"', 'value="hidden-corp"', 'value="turn_hidden-corp"', *query.values()):
                # What was typed is shown in its own field again, and in links that keep it.
                page = page.replace(echoed, "")
            assert "hidden" not in page.replace('type="hidden"', "").replace("visually-hidden", "").replace("aria-hidden", ""), (
                model,
                query,
            )
    assert "shown-corp" in html(limited.get(url("session", "changelist")))
    form = html(limited.get(url("apikey", "add")))
    assert "shown-corp" in form
    assert "hidden-corp" not in form
    assert "hidden-corp" not in html(limited.get("/admin/"))


def test_no_page_or_action_of_another_tenant_can_be_told_from_a_missing_one(limited: Client, hidden: Tenant) -> None:
    key, session = ApiKey.objects.get(tenant=hidden), Session.objects.get(tenant=hidden)
    before = AuditRecord.objects.count()
    for model, row, pages in (
        ("apikey", key, ("change", "revoke", "limits", "rotate", "history", "delete")),
        ("session", session, ("change", "history", "delete", "events", "input", "export", "stop", "delete-session")),
        ("tenant", hidden, ("suspend", "resume", "invite", "export", "delete-tenant")),
    ):
        for page in pages:
            address = url(model, page, row)
            missing = address.replace(f"/{row.pk}/", "/999999/")
            for method in (limited.get, limited.post):
                assert method(address).status_code == method(missing).status_code, (model, page)
                assert method(address).status_code in (302, 403, 404)
    wish = {"tenant": str(hidden.pk), "name": "mine", "scopes": ["sessions:read"], "expires": "90d"}
    assert "not one of the available choices" in html(limited.post(url("apikey", "add"), wish))
    chosen = {"action": "revoke_selected", "_selected_action": [str(key.pk)], "confirmed": "yes"}
    limited.post(url("apikey", "changelist"), chosen)
    key.refresh_from_db()
    hidden.refresh_from_db()
    assert (key.revoked_at, hidden.suspended_at) == (None, None)
    assert AuditRecord.objects.count() == before


def test_matches_of_other_tenants_do_not_displace_ones_own_in_a_search_for_words(
    limited: Client, shown: Tenant, hidden: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_MATCHES", 2)
    own = Session.objects.get(tenant=shown)
    search_index.index_session(own.pk)
    for number in range(3):
        session = make_session(hidden, public_id=f"sess_of_others_{number}")
        say(session, "user", "words", make_turn(session))
        search_index.index_session(session.pk)
    page = html(limited.get(url("session", "changelist"), {"words": "words"}))
    assert own.public_id in page
    assert "sess_of_others" not in page


def test_limited_staff_create_no_tenants_and_see_no_records_of_the_server(limited: Client) -> None:
    assert limited.get(url("tenant", "add")).status_code == 403
    assert limited.post(url("tenant", "add"), {"slug": "mine"}).status_code == 403
    AuditRecord.objects.create(actor="x", action="signed_in", target="account somebody")
    assert "somebody" not in html(limited.get(url("auditrecord", "changelist")))


def test_a_transcript_needs_a_reason_where_the_operator_demands_one(limited: Client, shown: Tenant, settings: object) -> None:
    settings.AGENTHOST_TRANSCRIPT_REASON = True  # type: ignore[attr-defined]
    page = url("session", "change", Session.objects.get(tenant=shown))
    assert "words of shown-corp" not in html(limited.get(page))
    assert "words of shown-corp" not in html(limited.post(page, {"reason": "   "}))
    assert limited.post(page, {"reason": "ticket 4711"}).status_code == 302
    assert "words of shown-corp" in html(limited.get(page))
    row = AuditRecord.objects.get(action="transcript_read")
    assert row.detail.endswith("; reason: ticket 4711")


def test_the_file_of_the_audit_has_the_records_of_ones_own_tenants_only(limited: Client) -> None:
    audit_chain.link_new()
    lines = body(limited.get("/admin/sessions_app/auditrecord/download/")).decode().splitlines()
    assert {json.loads(line)["tenant"] for line in lines} == {"shown-corp"}
    assert "hidden-corp" not in "".join(lines)
    assert AuditRecord.objects.get(action="audit_exported").actor == "admin:lim"
    Staff.objects.all().delete()
    assert limited.get("/admin/sessions_app/auditrecord/download/").status_code == 302


def test_an_operator_invites_the_owner_of_a_tenant_and_the_link_works_once(limited: Client, shown: Tenant) -> None:
    page = html(limited.get(url("tenant", "change", shown)))
    for link in ("Invite…", "Issue a key", "Suspend…"):
        assert link in page
    made = html(limited.post(url("tenant", "invite", shown), {"role": "owner"}))
    found = re.search(r"token=([A-Za-z0-9_-]{43})", made)
    assert found is not None
    assert invitations.find(found[1]).tenant == shown
    assert AuditRecord.objects.get(action="member_invited").actor == "admin:lim"
    Staff.objects.update(role=StaffRole.AUDITOR)
    assert limited.post(url("tenant", "invite", shown), {"role": "owner"}).status_code == 403
    assert "Invite…" not in html(limited.get(url("tenant", "change", shown)))
