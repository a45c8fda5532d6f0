"""Accounts in the admin: superusers alone, and never without a record."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from sessions_app.models import AuditRecord, Staff, StaffRole
from tests.faces.admin.conversations import make_tenant
from tests.faces.admin.pages import html

pytestmark = pytest.mark.django_db(transaction=True)

NEW_PASSWORD = "a new long password"


@pytest.fixture
def boss(transactional_db: None) -> User:
    user: User = User.objects.create_superuser("boss", password="the long password of boss")
    return user


@pytest.fixture
def mallory(transactional_db: None) -> User:
    """An operator with every permission that Django has, which count for nothing."""
    user = User.objects.create_user("mallory", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    Staff.objects.create(user=user, role=StaffRole.OPERATOR, reads_transcripts=True)
    return user


def signed_in(user: User) -> Client:
    client = Client(REMOTE_ADDR="10.0.0.9")
    client.force_login(user)
    return client


def page(model: str, name: str, *args: object) -> str:
    return reverse(f"admin:auth_{model}_{name}", args=args)


def account_fields(user: User, **changed: Any) -> dict[str, Any]:
    fields = {
        "username": user.username,
        "is_active": "on",
        **{
            f"{form}-{kind}": "0"
            for form in ("staff", "memberships", "authenticator_set")
            for kind in ("TOTAL_FORMS", "INITIAL_FORMS")
        },
        **changed,
    }
    return {name: value for name, value in fields.items() if value != ""}


def test_an_operator_with_every_permission_of_django_cannot_touch_accounts(mallory: User, boss: User) -> None:
    client = signed_in(mallory)
    before = AuditRecord.objects.count()
    index = html(client.get(reverse("admin:index")))
    assert "Users" not in index
    assert "Groups" not in index
    assert "API keys" in index
    passwords = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD, "usable_password": "true"}
    tried = {
        page("user", "changelist"): {"action": "delete_selected", "_selected_action": [str(boss.pk)], "post": "yes"},
        page("user", "add"): {"username": "another", **passwords},
        page("user", "change", mallory.pk): account_fields(mallory, is_superuser="on"),
        page("user", "change", boss.pk): account_fields(boss),
        page("user", "delete", boss.pk): {"post": "yes"},
        page("user", "history", boss.pk): {},
        reverse("admin:auth_user_password_change", args=(boss.pk,)): passwords,
        reverse("admin:auth_user_password_change", args=(mallory.pk,)): passwords,
    }
    for address, fields in tried.items():
        assert client.get(address).status_code == 403, address
        assert client.post(address, fields).status_code == 403, address
    assert client.get(reverse("admin:app_list", args=("auth",))).status_code == 404
    mallory.refresh_from_db()
    assert not mallory.is_superuser
    boss.refresh_from_db()
    assert boss.check_password("the long password of boss")
    assert set(User.objects.values_list("username", flat=True)) == {"mallory", "boss"}
    assert set(AuditRecord.objects.order_by("id")[before:].values_list("action", flat=True)) <= {"signed_in", "password_changed"}


def test_a_superuser_gives_rights_and_each_is_a_record(boss: User) -> None:
    client, bob = signed_in(boss), User.objects.create_user("bob")
    acme = make_tenant()
    AuditRecord.objects.all().delete()
    role = {"staff-0-role": "operator", "staff-0-limited": "on", "staff-0-tenants": [str(acme.pk)], "staff-0-user": str(bob.pk)}
    given = account_fields(bob, is_superuser="on", **{"staff-TOTAL_FORMS": "1"}, **role)
    assert client.post(page("user", "change", bob.pk), given).status_code == 302
    rows = AuditRecord.objects.order_by("id")
    assert {(row.actor, row.address, row.target) for row in rows} == {("admin:boss", "10.0.0.9", "account bob")}
    assert [(row.action, row.detail) for row in rows] == [
        ("account_changed", "is_superuser: no → yes"),
        ("staff_added", "role: operator; reads_transcripts: no; limited: yes"),
        ("staff_changed", "tenants: none → acme"),
    ]
    found = html(client.get(reverse("admin:sessions_app_auditrecord_changelist"), {"action": "account_changed"}))
    assert "is_superuser: no → yes" in found


def test_a_superuser_adds_renames_and_deletes_and_each_is_a_record(boss: User) -> None:
    client = signed_in(boss)
    AuditRecord.objects.all().delete()
    passwords = {"password1": NEW_PASSWORD, "password2": NEW_PASSWORD, "usable_password": "true"}
    client.post(page("user", "add"), {"username": "bob", **passwords})
    bob = User.objects.get(username="bob")
    changed = {"password1": f"{NEW_PASSWORD} again", "password2": f"{NEW_PASSWORD} again", "usable_password": "true"}
    client.post(reverse("admin:auth_user_password_change", args=(bob.pk,)), changed)
    client.post(page("user", "delete", bob.pk), {"post": "yes"})
    rows = list(AuditRecord.objects.order_by("id"))
    assert [(row.action, row.target) for row in rows] == [
        ("account_created", "account bob"),
        ("password_changed", "account bob"),
        ("account_deleted", "account bob"),
    ]
    assert {row.actor for row in rows} == {"admin:boss"}
    assert not any(NEW_PASSWORD in row.detail or "pbkdf2" in row.detail for row in rows)


def test_the_admin_has_no_pages_but_ours_and_those_of_accounts() -> None:
    from django.contrib import admin

    assert {model._meta.app_label for model in admin.site._registry} == {"sessions_app", "auth"}


def test_a_superuser_removes_a_lost_second_factor_and_it_is_a_record(boss: User) -> None:
    bob = User.objects.create_user("bob")
    factor = Authenticator.objects.create(user=bob, type="totp", data={"secret": "sealed:x"})
    forms = {"authenticator_set-TOTAL_FORMS": "1", "authenticator_set-INITIAL_FORMS": "1", "authenticator_set-0-DELETE": "on"}
    rows = {"authenticator_set-0-id": str(factor.pk), "authenticator_set-0-user": str(bob.pk)}
    client = signed_in(boss)
    assert "sealed:x" not in html(client.get(page("user", "change", bob.pk)))
    assert client.post(page("user", "change", bob.pk), account_fields(bob, **forms, **rows)).status_code == 302
    assert not Authenticator.objects.exists()
    row = AuditRecord.objects.get(action="second_factor_removed")
    assert (row.actor, row.target, row.detail) == ("admin:boss", "account bob", "totp")
