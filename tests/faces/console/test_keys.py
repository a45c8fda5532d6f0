"""The console's pages of API keys."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from sessions_app.console import paging
from sessions_app.core.tenancy import keys
from sessions_app.models import ApiKey, AuditRecord, Role, Tenant
from tests.faces.console.conftest import As, text

pytestmark = pytest.mark.django_db(transaction=True)

FIELDS = {"name": "my app", "scopes": ["meta:read", "sessions:read"], "expires": "30d", "max_sessions": "7"}


def raw_of(page: str) -> str:
    found = re.search(r'id="raw-key" type="text" readonly value="(ah_[A-Za-z0-9_-]{43})"', page)
    assert found is not None, page
    return found[1]


def acts(tenant: Tenant) -> list[tuple[str, str]]:
    return list(
        AuditRecord.objects.filter(tenant=tenant).exclude(action="tenant_created").order_by("id").values_list("actor", "action")
    )


def test_a_developer_makes_a_key_that_is_shown_once_and_works(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.DEVELOPER)
    shown = client.post("/console/acme/keys/new/", FIELDS, headers={"host": "agents.example.org:8443"})
    assert shown.status_code == 200
    page = text(shown)
    raw = raw_of(page)
    assert keys.authenticate(raw).tenant == acme.pk
    assert f"curl -sS http://agents.example.org:8443/aap/v3/meta -H 'Authorization: Bearer {raw}'" in html.unescape(page)
    assert shown["Cache-Control"] == "no-store"
    key = ApiKey.objects.get(tenant=acme)
    assert (key.scopes, key.max_sessions) == (["meta:read", "sessions:read"], 7)
    assert key.expires_at is not None
    assert key.expires_at - timezone.now() < timedelta(days=30)
    for address in ("/console/acme/keys/", f"/console/acme/keys/{key.pk}/"):
        later = text(client.get(address))
        assert raw not in later
        assert key.prefix in later
    assert acts(acme) == [("member:developer", "key_issued")]


def test_limits_rotation_and_revocation_are_done_and_recorded(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.OWNER)
    issued = keys.issue(acme, name="app", scopes=["meta:read"], expires_at=None, allowed_agents=None, actor="x")
    key = f"/console/acme/keys/{issued.key.pk}"
    assert client.post(f"{key}/limits/", {"max_sessions": "3"})["Location"] == f"{key}/"
    replacement = raw_of(text(client.post(f"{key}/rotate/", {"overlap": "1h"})))
    assert keys.authenticate(issued.raw).tenant == keys.authenticate(replacement).tenant == acme.pk
    assert ApiKey.objects.get(rotated_from=issued.key).max_sessions == 3
    assert "Revoke" in text(client.get(f"{key}/revoke/"))
    assert keys.is_good(issued.raw), "asking revokes nothing"
    assert client.post(f"{key}/revoke/")["Location"] == f"{key}/"
    assert not keys.is_good(issued.raw)
    assert [action for _, action in acts(acme)[1:]] == ["key_changed", "key_rotated", "key_issued", "key_revoked"]
    assert {actor for actor, _ in acts(acme)[1:]} == {"member:owner"}


def test_a_developer_becomes_no_owner_by_a_key(acme: Tenant, as_role: As) -> None:
    developer, owner = as_role(Role.DEVELOPER), as_role(Role.OWNER)
    for scope in ("members", "audit"):
        given = {**FIELDS, "scopes": ["meta:read", scope]}
        assert f'value="{scope}"' not in text(developer.get("/console/acme/keys/new/"))
        assert "Select a valid choice" in text(developer.post("/console/acme/keys/new/", given))
        made = keys.authenticate(raw_of(text(owner.post("/console/acme/keys/new/", given))))
        assert made.may(scope)
        refused = developer.post(f"/console/acme/keys/{made.key}/rotate/", {"overlap": "1h"})
        assert (refused.status_code, "ah_" in text(refused)) == (403, False)
    everything = raw_of(text(developer.post("/console/acme/keys/new/", {**FIELDS, "scopes": ["*"]})))
    assert [keys.authenticate(everything).may(scope) for scope in ("keys", "export", "members", "audit")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"name": " "}, "This field is required"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"scopes": ["root"]}, "Select a valid choice"),
        ({"scopes": []}, "This field is required"),
        ({"expires_on": "2001-01-01"}, "This day is in the past"),
        ({"max_sessions": "-1"}, "greater than or equal to 0"),
        ({"allowed_agents": ["no such agent"]}, "Select a valid choice"),
    ],
)
def test_a_wrong_field_is_named_and_no_key_is_made(acme: Tenant, as_role: As, wrong: dict[str, object], complaint: str) -> None:
    answer = as_role(Role.OWNER).post("/console/acme/keys/new/", {**FIELDS, **wrong})
    assert answer.status_code == 422
    assert complaint in text(answer)
    assert not ApiKey.objects.filter(tenant=acme).exists()


def test_agents_that_the_tenant_may_not_use_are_not_offered(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.OWNER)
    assert 'name="allowed_agents" value="demo"' in text(client.get("/console/acme/keys/new/"))
    Tenant.objects.filter(pk=acme.pk).update(allowed_agents=["another"])
    assert 'name="allowed_agents"' not in text(client.get("/console/acme/keys/new/"))


def test_the_list_goes_on_by_keyset_and_knows_states(acme: Tenant, as_role: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "A_PAGE", 2)
    client = as_role(Role.READER)
    assert "No key yet" in text(client.get("/console/acme/keys/"))
    made = [
        keys.issue(acme, name=f"app {number}", scopes=["*"], expires_at=None, allowed_agents=None, actor="x").key
        for number in range(3)
    ]
    keys.mark_revoked(made[0], actor="x")
    first = text(client.get("/console/acme/keys/"))
    assert [name in first for name in ("app 2", "app 1", "app 0")] == [True, True, False]
    assert f'href="?before={made[1].pk}" rel="next"' in first
    second = text(client.get(f"/console/acme/keys/?before={made[1].pk}"))
    assert "app 0" in second
    assert 'rel="next"' not in second
    assert "Make a key" not in first, "a reader changes nothing"
    revoked = text(client.get("/console/acme/keys/?state=revoked"))
    assert [name in revoked for name in ("app 1", "app 0")] == [False, True]


def test_the_key_under_which_a_member_acts_is_neither_listed_nor_rotated(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.OWNER)
    member = acme.members.get().user
    hidden = ApiKey.objects.create(tenant=acme, member=member, name="member owner", prefix="ah_x", digest="d", scopes=[])
    assert "member owner" not in text(client.get("/console/acme/keys/"))
    assert client.post(f"/console/acme/keys/{hidden.pk}/rotate/", {"overlap": "1h"}).status_code == 404
