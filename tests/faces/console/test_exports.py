"""The page on which a tenant's data is taken away, and what it says about what is kept."""

from __future__ import annotations

import io
import zipfile
from datetime import timedelta
from typing import Any

import pytest

from sessions_app.core.records import live_workers
from sessions_app.core.workspaces import access as file_rules
from sessions_app.models import AuditRecord, Role, Session, Tenant
from tests.faces.admin.conversations import make_session, make_tenant
from tests.faces.console.conftest import As, body, text

pytestmark = pytest.mark.django_db(transaction=True)

ADDRESS = "/console/acme/export/"


def names(answer: Any) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(body(answer))) as archive:
        return sorted(archive.namelist())


def test_a_member_takes_all_sessions_of_the_tenant_or_those_of_some_days_away(acme: Tenant, as_role: As) -> None:
    old, new, other = make_session(acme), make_session(acme), make_session(make_tenant("other"))
    today = live_workers.database_clock()
    for session, age in ((old, 10), (new, 0)):
        Session.objects.filter(pk=session.pk).update(created_at=today - timedelta(days=age))
    owner = as_role(Role.OWNER)
    assert f'href="{ADDRESS}">Export all' in text(owner.get("/console/acme/sessions/"))
    answer = owner.post(ADDRESS, {"pages": "on", "workspace": "on"})
    assert answer["Content-Disposition"] == 'attachment; filename="acme.zip"'
    found = names(answer)
    assert found == sorted(["index.jsonl", *(f"{one.public_id}.{form}" for one in (old, new) for form in ("jsonl", "html"))])
    assert other.public_id not in str(found)
    since = f"{today - timedelta(days=3):%Y-%m-%d}"
    assert names(owner.post(ADDRESS, {"since": since})) == ["index.jsonl", f"{new.public_id}.jsonl"]
    details = AuditRecord.objects.filter(action="tenant_exported").order_by("pk").values_list("actor", "detail")
    assert list(details) == [("member:owner", "JSON Lines and HTML"), ("member:owner", f"JSON Lines; since {since}")]
    wrong = owner.post(ADDRESS, {"since": "2026-11-02", "until": "2026-11-01"})
    assert wrong.status_code == 422
    assert "The first day is after the last one." in text(wrong)


def test_the_page_says_what_is_kept_for_how_long(acme: Tenant, as_role: As, settings: Any) -> None:
    settings.AGENTHOST_DELTA_RETENTION_SECONDS = 6 * 3600.0
    settings.AGENTHOST_EVENT_RETENTION_SECONDS = 40 * 86400.0
    settings.AGENTHOST_WORKSPACE_DAYS = 1
    owner = as_role(Role.OWNER)
    page = text(owner.get(ADDRESS))
    assert '<label class="choice" for="id_pages"><input type="checkbox"' in page
    for kept in ("<td>until you delete them</td>", "<td>6 hours</td>", "<td>40 days</td>", "1 day after the last session"):
        assert kept in page
    Tenant.objects.filter(pk=acme.pk).update(session_retention_days=90)
    assert "nobody has used them for 90 days" in text(owner.get(ADDRESS))


def test_where_rules_restrict_files_the_page_offers_none(acme: Tenant, as_role: As, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session(acme)
    monkeypatch.setattr(file_rules, "restrict_clients", lambda: True)
    owner = as_role(Role.OWNER)
    page = text(owner.get(ADDRESS))
    assert 'name="workspace"' not in page
    assert "so exports have none" in page
    assert len(names(owner.post(ADDRESS, {"workspace": "on"}))) == 2


def test_too_many_exports_are_refused_on_the_page(acme: Tenant, as_role: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions_app.core.sessions.export_files.OF_TENANT", 0)
    answer = as_role(Role.DEVELOPER).post(ADDRESS)
    assert answer.status_code == 409
    assert "0 exports of this tenant are being downloaded already" in text(answer)
