"""The console's pages of members, and the way of an invited person."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from sessions_app.core.tenancy import invitations
from sessions_app.models import AuditRecord, Invitation, Member, Role, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery"


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="acme")


@pytest.fixture(autouse=True)
def _fast_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def as_member(tenant: Tenant, role: Role | None, name: str = "") -> Client:
    user = User.objects.create_user(name or role or "nobody")
    if role is not None:
        Member.objects.create(tenant=tenant, user=user, role=role)
    client = Client(REMOTE_ADDR="192.0.2.1")
    client.force_login(user)
    return client


def text(response: Any) -> str:
    return str(response.content.decode())


def link_of(response: Any) -> str:
    found = re.search(r'value="http://testserver(/accounts/invitation/\?token=[^"]+)"', text(response))
    assert found is not None
    return found[1]


def test_an_owner_invites_and_the_invited_person_makes_an_account_and_is_signed_in(acme: Tenant) -> None:
    owner = as_member(acme, Role.OWNER)
    shown = owner.post(reverse("console:invite", args=["acme"]), {"role": "developer", "email": "bob@example.org"})
    link = link_of(shown)
    assert shown["Cache-Control"] == "no-store"
    assert link not in text(owner.get(reverse("console:members", args=["acme"])))
    bob = Client(REMOTE_ADDR="192.0.2.2")
    opened = bob.get(link)
    assert opened["Location"] == "/accounts/invitation/"
    assert 'value="bob@example.org"' in text(bob.get("/accounts/invitation/"))
    weak = bob.post("/accounts/invitation/", {"username": "bob@example.org", "password1": "123", "password2": "123"})
    assert "too short" in text(weak)
    made = bob.post("/accounts/invitation/", {"username": "bob", "password1": PASSWORD, "password2": PASSWORD})
    assert made["Location"] == "/console/acme/"
    assert "developer" in text(bob.get("/console/acme/"))
    again = Client()
    again.get(link)
    refused = again.post("/accounts/invitation/", {"username": "eve", "password1": PASSWORD, "password2": PASSWORD})
    assert refused.status_code == 404
    assert not User.objects.filter(username="eve").exists()
    acts = list(AuditRecord.objects.filter(tenant=acme).order_by("id").values_list("actor", "action"))
    assert acts == [
        ("member:owner", "member_invited"),
        ("member:bob", "member_added"),
        ("member:bob", "invitation_accepted"),
    ]


def test_a_signed_in_account_joins_only_by_a_post(acme: Tenant) -> None:
    ann = as_member(acme, None, "ann")
    ann.get(f"/accounts/invitation/?token={invitations.issue(acme, Role.READER, actor='x', address='').token}")
    assert "Join as ann" in text(ann.get("/accounts/invitation/"))
    assert not Member.objects.exists()
    assert ann.post("/accounts/invitation/")["Location"] == "/console/acme/"
    assert ann.get("/console/acme/").status_code == 200


def test_nothing_is_done_without_the_forms_token(acme: Tenant) -> None:
    user = User.objects.create_user("ann")
    Member.objects.create(tenant=acme, user=user, role=Role.OWNER)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    for address in ("/console/acme/invite/", "/accounts/sessions/", "/accounts/logout/", "/accounts/invitation/"):
        assert client.post(address, {"role": "reader"}).status_code == 403, address
    assert not Invitation.objects.exists()
    assert client.get("/console/acme/").status_code == 200


def test_hostile_names_are_shown_as_text(acme: Tenant) -> None:
    Tenant.objects.update(title="<script>alert(1)</script>")
    Member.objects.create(tenant=acme, user=User.objects.create_user('"><img src=x onerror=alert(1)>'), role=Role.READER)
    page = text(as_member(acme, Role.OWNER).get("/console/acme/members/"))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
