"""Keys in the admin: issued, shown once, rotated, revoked, never edited."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.tenancy import keys, tenants
from sessions_app.core.turns import revoking
from sessions_app.models import ApiKey, AuditRecord, Tenant
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


def wish(tenant: Tenant, **given: Any) -> dict[str, Any]:
    return {"tenant": tenant.pk, "name": "backend", "scopes": ["meta:read", "sessions:read"], "expires": "30d", **given}


def key_on(page: str) -> str:
    found = set(re.findall(r"ah_[A-Za-z0-9_-]{43}", unescape(page)))
    assert len(found) == 1
    return str(found.pop())


def make_key(tenant: Tenant, **given: Any) -> keys.Issued:
    fields = {"name": "old", "scopes": ["*"], "expires_at": None, "allowed_agents": None, "actor": "t"}
    return keys.issue(tenant, **{**fields, **given})


def test_an_issued_key_works_and_has_the_checked_rights(eve: Client, acme: Tenant) -> None:
    page = html(eve.post(url("apikey", "add"), wish(acme)))
    raw = key_on(page)
    caller = keys.authenticate(raw)
    assert (caller.tenant, caller.scopes) == (acme.pk, frozenset({"meta:read", "sessions:read"}))
    assert f'curl -H "Authorization: Bearer {raw}" http://testserver/aap/v3/meta' in unescape(page)
    key = ApiKey.objects.get()
    assert key.expires_at is not None
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)


def test_the_key_is_shown_once_and_stored_nowhere(eve: Client, acme: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        response = eve.post(url("apikey", "add"), wish(acme))
    raw = key_on(html(response))
    secret = raw[keys.PREFIX_LENGTH :]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'select * from "{table}"')
            assert secret not in repr(cursor.fetchall()), table
    assert LogEntry.objects.count() == 1
    assert secret not in repr(list(LogEntry.objects.values()))
    assert secret not in caplog.text
    assert secret not in repr(response.headers)
    assert secret not in repr(eve.cookies)
    assert secret not in repr(dict(eve.session))
    key = ApiKey.objects.get()
    for page in (url("apikey", "changelist"), url("apikey", "change", key), url("auditrecord", "changelist"), "/admin/"):
        assert secret not in html(eve.get(page)), page


def test_the_page_with_the_key_is_not_cached(eve: Client, acme: Tenant) -> None:
    response = eve.post(url("apikey", "add"), wish(acme))
    assert "no-store" in response["Cache-Control"]
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert "<script>" not in html(response)


def test_issuing_is_in_the_audit_with_operator_and_address(eve: Client, acme: Tenant) -> None:
    eve.post(url("apikey", "add"), wish(acme))
    row = AuditRecord.objects.get(action="key_issued")
    assert (row.actor, row.address, row.tenant_id) == ("admin:eve", "10.0.0.9", acme.pk)


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"scopes": []}, {"scopes": ["sessions:fly"]}, {"expires_on": "2001-01-01"}, {"expires": "7y"}],
)
def test_an_invalid_form_shows_its_errors_and_issues_no_key(eve: Client, acme: Tenant, wrong: dict[str, Any]) -> None:
    page = html(eve.post(url("apikey", "add"), wish(acme, **wrong)))
    assert "errorlist" in page
    assert not ApiKey.objects.exists()


def test_a_chosen_day_replaces_the_lifetime_and_ends_at_midnight(eve: Client, acme: Tenant) -> None:
    day = timezone.now().date() + timedelta(days=3)
    html(eve.post(url("apikey", "add"), wish(acme, expires="", expires_on=day.isoformat())))
    key = ApiKey.objects.get()
    assert key.expires_at is not None
    assert (key.expires_at.date(), key.expires_at.hour) == (day, 23)


def test_agents_can_be_checked(eve: Client, acme: Tenant) -> None:
    html(eve.post(url("apikey", "add"), wish(acme, allowed_agents=["demo"])))
    assert ApiKey.objects.get().allowed_agents == ["demo"]


def test_a_key_is_revoked_after_a_confirmation(eve: Client, acme: Tenant) -> None:
    issued = make_key(acme)
    assert "Revoke" in html(eve.get(url("apikey", "revoke", issued.key)))
    assert keys.authenticate(issued.raw).tenant == acme.pk
    response = eve.post(url("apikey", "revoke", issued.key), follow=True)
    assert "Revoked" in html(response)
    with pytest.raises(NotAuthenticated):
        keys.authenticate(issued.raw)
    assert AuditRecord.objects.get(action="key_revoked").actor == "admin:eve"


def test_many_keys_are_revoked_after_a_confirmation(eve: Client, acme: Tenant) -> None:
    first, second, third = (make_key(acme) for _ in range(3))
    chosen = {"action": "revoke_selected", "_selected_action": [first.key.pk, second.key.pk]}
    assert "Revoke 2 keys?" in html(eve.post(url("apikey", "changelist"), chosen))
    assert ApiKey.objects.filter(revoked_at=None).count() == 3
    eve.post(url("apikey", "changelist"), {**chosen, "confirmed": "yes"})
    assert list(ApiKey.objects.filter(revoked_at=None)) == [third.key]
    assert AuditRecord.objects.filter(action="key_revoked").count() == 2


def test_a_rotation_shows_the_new_key_and_when_the_old_one_expires(eve: Client, acme: Tenant) -> None:
    old = make_key(acme)
    assert "The old key expires" in html(eve.get(url("apikey", "rotate", old.key)))
    page = html(eve.post(url("apikey", "rotate", old.key), {"overlap": "1h"}))
    new = key_on(page)
    assert keys.authenticate(new).key != keys.authenticate(old.raw).key
    old.key.refresh_from_db()
    assert old.key.expires_at is not None
    assert f"{old.key.expires_at:%Y-%m-%d %H:%M}" in page


def test_a_revoked_key_is_not_rotated(eve: Client, acme: Tenant) -> None:
    old = make_key(acme)
    turns.revoke_key(old.key, actor="t")
    page = html(eve.post(url("apikey", "rotate", old.key), {"overlap": "1h"}, follow=True))
    assert "cannot be rotated" in page
    assert ApiKey.objects.count() == 1


def test_nothing_of_a_key_can_be_edited_or_deleted(eve: Client, acme: Tenant) -> None:
    issued = make_key(acme)
    before = ApiKey.objects.values().get()
    eve.post(url("apikey", "change", issued.key), wish(acme, name="changed"))
    assert ApiKey.objects.values().get() == before
    assert eve.post(url("apikey", "delete", issued.key), {"post": "yes"}).status_code == 403
    assert "delete_selected" not in html(eve.get(url("apikey", "changelist")))


def test_an_operator_with_view_permission_cannot_issue_revoke_or_rotate(reader: Client, acme: Tenant) -> None:
    issued = make_key(acme)
    page = html(reader.get(url("apikey", "change", issued.key)))
    assert "Revoke" not in page
    assert "Rotate" not in page
    assert reader.get(url("apikey", "add")).status_code == 403
    assert reader.post(url("apikey", "add"), wish(acme)).status_code == 403
    assert reader.post(url("apikey", "revoke", issued.key)).status_code == 403
    assert reader.post(url("apikey", "rotate", issued.key), {"overlap": "0"}).status_code == 403
    reader.post(
        url("apikey", "changelist"), {"action": "revoke_selected", "_selected_action": [issued.key.pk], "confirmed": "yes"}
    )
    assert keys.authenticate(issued.raw).tenant == acme.pk
    assert ApiKey.objects.count() == 1


def test_actions_need_the_csrf_token(acme: Tenant, eve: Client) -> None:
    issued = make_key(acme)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = eve.cookies
    for page in (url("apikey", "add"), url("apikey", "revoke", issued.key), url("apikey", "rotate", issued.key)):
        assert strict.post(page, wish(acme, overlap="0")).status_code == 403, page
    assert ApiKey.objects.count() == 1


def test_keys_are_found_by_prefix_and_filtered(eve: Client, acme: Tenant) -> None:
    wanted, other = make_key(acme, name="wanted"), make_key(tenants.create("globex")[0], name="other")
    turns.revoke_key(other.key, actor="t")
    page = url("apikey", "changelist")
    for query in ({"q": wanted.key.prefix}, {"tenant": "acme"}, {"state": "active"}):
        found = html(eve.get(page, query))
        assert wanted.key.prefix in found, query
        assert other.key.prefix not in found, query
    assert other.key.prefix in html(eve.get(page, {"state": "revoked"}))
    assert "0 api keys" in html(eve.get(page, {"state": "expired"})).lower()


def test_html_in_names_is_escaped(eve: Client, acme: Tenant) -> None:
    issued = make_key(acme, name="<script>alert(1)</script>")
    for page in (url("apikey", "changelist"), url("apikey", "change", issued.key), url("apikey", "revoke", issued.key)):
        text = html(eve.get(page))
        assert "<script>alert" not in text, page
        assert "&lt;script&gt;alert" in text, page


def test_a_key_is_issued_with_limits_and_they_can_be_changed(eve: Client, acme: Tenant) -> None:
    page = html(eve.get(url("apikey", "add")))
    assert "Empty: only the tenant&#x27;s limit applies." in page
    caller = keys.authenticate(key_on(html(eve.post(url("apikey", "add"), wish(acme, max_sessions="3")))))
    assert (caller.key_limits.sessions, caller.key_limits.turns_at_once) == (3, None)
    key = ApiKey.objects.get()
    page = html(eve.get(url("apikey", "change", key)))
    assert "<td>sessions</td><td>0</td><td>3</td>" in page
    assert 'value="3"' in html(eve.get(url("apikey", "limits", key)))
    eve.post(url("apikey", "limits", key), {"max_turns_per_minute": "10"})
    key.refresh_from_db()
    assert (key.max_sessions, key.max_turns_per_minute) == (None, 10)
    row = AuditRecord.objects.get(action="key_changed")
    assert (row.actor, row.detail) == ("admin:eve", "turns_per_minute none -> 10; sessions 3 -> none")


def test_an_invalid_limit_of_a_key_shows_its_error(eve: Client, acme: Tenant) -> None:
    key = make_key(acme).key
    assert "errorlist" in html(eve.post(url("apikey", "limits", key), {"max_sessions": "-1"}))
    assert not AuditRecord.objects.filter(action="key_changed").exists()


def test_an_operator_with_view_permission_cannot_change_limits(reader: Client, acme: Tenant) -> None:
    key = make_key(acme).key
    assert reader.post(url("apikey", "limits", key), {"max_sessions": "9"}).status_code == 403


def test_a_revocation_reports_turns_that_the_sweep_still_has_to_stop(
    eve: Client, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    def left(_key: int, until: float | None = None) -> int:
        waits.append(until)
        return 2

    monkeypatch.setattr(revoking, "cancel_key", left)
    first, second = make_key(acme), make_key(acme)
    chosen = {"action": "revoke_selected", "_selected_action": [first.key.pk, second.key.pk], "confirmed": "yes"}
    page = html(eve.post(url("apikey", "changelist"), chosen, follow=True))
    assert "4 turns are locked by other transactions and not stopped yet" in page
    assert len(waits) == 2
    assert None not in waits
    assert len(set(waits)) == 1
