"""Changes of accounts, groups and rights leave records by whatever way they come."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import transaction
from pytest_django import Settings

from sessions_app.core.tenancy import audit
from sessions_app.models import AuditRecord

pytestmark = pytest.mark.django_db(transaction=True)


def rows() -> list[tuple[str, str, str]]:
    return list(AuditRecord.objects.order_by("id").values_list("action", "target", "detail"))


def permission(name: str) -> Permission:
    return Permission.objects.get(content_type__app_label="sessions_app", codename=name)


def test_an_account_from_the_shell_is_a_record_with_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "a fine long password")
    call_command("createsuperuser", username="eve", email="", interactive=False, stdout=io.StringIO())
    row = AuditRecord.objects.get()
    assert (row.action, row.target) == ("account_created", "account eve")
    assert row.actor.startswith("shell")
    assert row.address
    assert "is_superuser: yes" in row.detail
    assert "password" not in row.detail


def test_rights_are_recorded_before_and_after_with_who_gave_them() -> None:
    bob = User.objects.create_user("bob", is_staff=True)
    with audit.acting(lambda: ("admin:eve", "10.0.0.9")):
        bob.is_superuser = True
        bob.save()
    row = AuditRecord.objects.latest("id")
    assert (row.actor, row.address, row.action) == ("admin:eve", "10.0.0.9", "account_changed")
    assert (row.target, row.detail) == ("account bob", "is_superuser: no → yes")


def test_groups_and_permissions_are_recorded_from_either_side() -> None:
    bob, readers = User.objects.create_user("bob"), Group.objects.create(name="readers")
    view, change = permission("view_tenant"), permission("change_tenant")
    AuditRecord.objects.all().delete()
    bob.user_permissions.set([view])
    bob.user_permissions.set([change])
    readers.permissions.add(view)
    readers.user_set.add(bob)
    bob.groups.clear()
    view.group_set.clear()
    readers.name = "watchers"
    readers.save()
    readers.delete()
    tenant = "sessions_app.{}_tenant"
    assert rows() == [
        ("account_changed", "account bob", f"permissions: none → {tenant.format('view')}"),
        ("account_changed", "account bob", f"permissions: {tenant.format('view')} → none"),
        ("account_changed", "account bob", f"permissions: none → {tenant.format('change')}"),
        ("group_changed", "group readers", f"permissions: none → {tenant.format('view')}"),
        ("account_changed", "account bob", "groups: none → readers"),
        ("account_changed", "account bob", "groups: readers → none"),
        ("group_changed", "group readers", f"permissions: {tenant.format('view')} → none"),
        ("group_changed", "group watchers", "name: readers → watchers"),
        ("group_deleted", "group watchers", ""),
    ]


def test_a_new_password_is_a_record_that_does_not_hold_it() -> None:
    bob = User.objects.create_user("bob", password="the first long one")
    bob.set_password("the second long one")
    bob.save()
    bob.delete()
    assert [row[:2] for row in rows()] == [
        ("account_created", "account bob"),
        ("password_changed", "account bob"),
        ("account_deleted", "account bob"),
    ]
    assert not any("long one" in detail or "$" in detail for _, _, detail in rows())


def test_a_sign_in_and_a_stronger_hash_are_no_change(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    bob = User.objects.create_user("bob", password="the long one")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher", *settings.PASSWORD_HASHERS]
    hashed = bob.password
    assert bob.check_password("the long one")
    bob.refresh_from_db()
    assert bob.password != hashed
    bob.save(update_fields=["last_login"])
    assert [row[0] for row in rows()] == ["account_created"]


def test_a_change_that_fails_leaves_no_record() -> None:
    bob = User.objects.create_user("bob")

    def fail_after_the_change() -> None:
        with transaction.atomic():
            bob.is_superuser = True
            bob.save()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_the_change()
    assert [row[0] for row in rows()] == ["account_created"]
