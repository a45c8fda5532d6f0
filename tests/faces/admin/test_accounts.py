"""Accounts and groups in the admin: superusers alone, and never without a record."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from sessions_app.models import AuditRecord
from tests.faces.admin.pages import html

pytestmark = pytest.mark.django_db(transaction=True)

NEW_PASSWORD = "a new long password"


@pytest.fixture
def boss(transactional_db: None) -> User:
    user: User = User.objects.create_superuser("boss", password="the long password of boss")
    return user


@pytest.fixture
def mallory(transactional_db: None) -> User:
    """A staff account with every permission there is, those of accounts and groups included."""
    user = User.objects.create_user("mallory", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    return user


def signed_in(user: User) -> Client:
    client = Client(REMOTE_ADDR="10.0.0.9")
    client.force_login(user)
    return client


def page(model: str, name: str, *args: object) -> str:
    return reverse(f"admin:auth_{model}_{name}", args=args)


def account_fields(user: User, **changed: Any) -> dict[str, Any]:
    at = user.date_joined
    fields = {
        "username": user.username,
        "date_joined_0": f"{at:%Y-%m-%d}",
        "date_joined_1": f"{at:%H:%M:%S}",
        "is_active": "on",
        "is_staff": "on" if user.is_staff else "",
        "groups": [str(group.pk) for group in user.groups.all()],
        "user_permissions": [str(one.pk) for one in user.user_permissions.all()],
        **changed,
    }
    return {name: value for name, value in fields.items() if value != ""}


def test_a_staff_account_with_every_permission_cannot_touch_accounts_or_groups(mallory: User, boss: User) -> None:
    client, group = signed_in(mallory), Group.objects.create(name="readers")
    before = AuditRecord.objects.count()
    index = html(client.get(reverse("admin:index")))
    assert "Users" not in index
    assert "Groups" not in index
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
        page("group", "changelist"): {"action": "delete_selected", "_selected_action": [str(group.pk)], "post": "yes"},
        page("group", "add"): {"name": "mine"},
        page("group", "change", group.pk): {"name": "mine"},
        page("group", "delete", group.pk): {"post": "yes"},
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
    assert list(Group.objects.values_list("name", flat=True)) == ["readers"]
    assert set(AuditRecord.objects.order_by("id")[before:].values_list("action", flat=True)) <= {"signed_in", "password_changed"}


def test_a_superuser_gives_rights_and_each_is_a_record(boss: User) -> None:
    client, bob = signed_in(boss), User.objects.create_user("bob")
    group = Group.objects.create(name="readers")
    view = Permission.objects.get(content_type__app_label="sessions_app", codename="view_tenant")
    AuditRecord.objects.all().delete()
    given = account_fields(bob, is_staff="on", is_superuser="on", groups=[str(group.pk)], user_permissions=[str(view.pk)])
    assert client.post(page("user", "change", bob.pk), given).status_code == 302
    rows = AuditRecord.objects.order_by("id")
    assert {(row.actor, row.address, row.action, row.target) for row in rows} == {
        ("admin:boss", "10.0.0.9", "account_changed", "account bob")
    }
    assert {row.detail for row in rows} == {
        "is_staff: no → yes; is_superuser: no → yes",
        "groups: none → readers",
        "permissions: none → sessions_app.view_tenant",
    }
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
