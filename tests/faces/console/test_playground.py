"""The playground's page, and the tokens that it gets: by role, by origin, for nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from sessions_app.console import playground
from sessions_app.core.base.caller import READ, WRITE
from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.tenancy import tokens
from sessions_app.models import AccessToken, ApiKey, Member, Role, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

ORIGIN = "http://testserver"


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="acme")


def as_member(tenant: Tenant, role: Role | None, *, checked: bool = False) -> Client:
    user = User.objects.create_user(str(role))
    if role is not None:
        Member.objects.create(tenant=tenant, user=user, role=role)
    client = Client(enforce_csrf_checks=checked)
    client.force_login(user)
    return client


def mint(client: Client, slug: str = "acme", origin: str = ORIGIN, **headers: str) -> Any:
    return client.post(reverse("console:playground_token", args=[slug]), headers={"Origin": origin, **headers})


@pytest.mark.parametrize(
    ("role", "scopes"),
    [(Role.OWNER, ["meta:read", READ, WRITE]), (Role.DEVELOPER, ["meta:read", READ, WRITE]), (Role.READER, ["meta:read", READ])],
)
def test_a_member_gets_a_token_of_the_tenant_with_what_the_role_allows(acme: Tenant, role: Role, scopes: list[str]) -> None:
    answer = mint(as_member(acme, role))
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    body = answer.json()
    assert set(body) == {"token", "seconds", "scopes"}
    assert body["scopes"] == scopes
    caller = tokens.authenticate(body["token"])
    assert (caller.tenant, caller.origin, caller.scopes) == (acme.pk, ORIGIN, frozenset(scopes))


def test_a_member_who_becomes_a_reader_or_leaves_loses_the_token(acme: Tenant) -> None:
    owner = as_member(acme, Role.OWNER)
    developer = as_member(acme, Role.DEVELOPER)
    member = Member.objects.get(role=Role.DEVELOPER)
    token = mint(developer).json()["token"]
    owner.post(reverse("console:member", args=["acme", member.pk]), {"role": "reader"})
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(token)
    reading = mint(developer).json()["token"]
    owner.post(reverse("console:member", args=["acme", member.pk]), {"remove": "yes"})
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(reading)
    assert mint(developer).status_code == 404


@pytest.mark.parametrize("origin", ["", "null", "http://elsewhere.example", "https://testserver.example", "http://testserver:81"])
def test_no_token_is_made_for_pages_of_other_origins(acme: Tenant, origin: str) -> None:
    answer = mint(as_member(acme, Role.OWNER), origin=origin)
    assert answer.status_code == 409
    assert "this server" in answer.json()["detail"]
    assert not AccessToken.objects.exists()


def test_a_token_needs_the_csrf_token_of_the_page(acme: Tenant) -> None:
    client = as_member(acme, Role.OWNER, checked=True)
    assert mint(client).status_code == 403
    page = client.get(reverse("console:playground", args=["acme"])).content.decode()
    sent = page.split('name="csrfmiddlewaretoken" value="')[-1].split('"')[0]
    assert mint(client, **{"X-CSRFToken": sent}).status_code == 200


def test_strangers_and_people_who_are_signed_out_get_no_token(acme: Tenant) -> None:
    assert mint(as_member(acme, None)).status_code == 404
    assert mint(as_member(acme, Role.READER), slug="nowhere").status_code == 404
    answer = mint(Client())
    assert answer["Location"].startswith("/accounts/login/")
    assert not AccessToken.objects.exists()


def test_a_suspended_tenant_and_a_revoked_member_are_told_so(acme: Tenant) -> None:
    client = as_member(acme, Role.OWNER)
    assert mint(client).status_code == 200
    ApiKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    refused = mint(client)
    assert (refused.status_code, "revoked" in refused.json()["detail"]) == (409, True)
    Tenant.objects.update(suspended_at="2026-01-01T00:00:00Z")
    refused = mint(client)
    assert (refused.status_code, "suspended" in refused.json()["detail"]) == (409, True)


def test_the_page_says_what_a_reader_may_not_do_and_lists_only_own_tenants(acme: Tenant) -> None:
    Tenant.objects.create(slug="globex")
    reader = as_member(acme, Role.READER)
    shown = reader.get(reverse("console:playground", args=["acme"]))
    page = shown.content.decode()
    assert "Your role may read here" in page
    assert 'data-writes="no"' in page
    assert "globex" not in page
    assert "script-src 'self'" in shown["Content-Security-Policy"]
    assert "aht_" not in page
    assert reader.get(reverse("console:playground", args=["globex"])).status_code == 404


@pytest.mark.parametrize("left", [True, False])
def test_a_member_who_loses_the_role_while_a_token_is_made_gets_none(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    client = as_member(acme, Role.DEVELOPER)
    allowed = playground._scopes

    def lose(*given: Any) -> list[str]:
        rows = Member.objects.filter(tenant=acme)
        rows.delete() if left else rows.update(role=Role.READER)
        return allowed(*given)

    monkeypatch.setattr(playground, "_scopes", lose)
    assert mint(client).status_code == 409
    assert not AccessToken.objects.exists()
