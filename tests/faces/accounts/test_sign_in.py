"""Sign-in: limits, the page of a client that must wait, and audit records."""

from __future__ import annotations

from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from sessions_app.models import AuditRecord

pytestmark = pytest.mark.django_db(transaction=True)

RIGHT, WRONG = "correct horse battery", "wrong horse battery"


@pytest.fixture(autouse=True)
def eve(settings: Settings, transactional_db: None) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    user: User = User.objects.create_superuser("eve", password=RIGHT)
    AuditRecord.objects.all().delete()
    return user


def sign_in(client: Client, password: str, name: str = "eve", **extra: Any) -> Any:
    return client.post(reverse("account_login"), {"login": name, "password": password}, **extra)


def acts() -> list[tuple[str, str, str]]:
    return list(AuditRecord.objects.order_by("id").values_list("action", "target", "address"))


def test_after_five_wrong_passwords_the_right_one_waits_and_the_page_says_how_long() -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    for _ in range(4):
        again = sign_in(client, WRONG)
        assert again.status_code == 200
        assert "The account name or the password is wrong." in again.content.decode()
    for password in (WRONG, WRONG, RIGHT, RIGHT):
        refused = sign_in(client, password)
        assert refused.status_code == 429
        assert 800 < int(refused.headers["Retry-After"]) <= 900
        page = refused.content.decode()
        assert "15 minutes" in page
        assert "eve" in page
        assert RIGHT not in page
        assert WRONG not in page
        assert "default-src 'none'" in refused.headers["Content-Security-Policy"]
    assert client.get(reverse("admin:index")).status_code == 302
    assert client.get(reverse("console:home")).status_code == 302
    # The form itself is still shown, and somebody elsewhere still comes in.
    assert client.get(reverse("account_login")).status_code == 200
    assert sign_in(Client(REMOTE_ADDR="198.51.100.7"), RIGHT).status_code == 302


def test_sign_ins_are_records_with_account_and_address() -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    sign_in(client, WRONG)
    sign_in(client, WRONG, name="nobody")
    assert sign_in(client, RIGHT).status_code == 302
    assert acts() == [
        ("sign_in_failed", "account eve", "192.0.2.1"),
        ("sign_in_failed", "account nobody", "192.0.2.1"),
        ("signed_in", "account eve", "192.0.2.1"),
    ]
    kept = AccessAttempt.objects.get()
    assert (kept.username, kept.get_data, kept.post_data) == ("nobody", "", "")


def test_an_account_without_a_role_in_the_admin_signs_in_and_is_told_so_there() -> None:
    User.objects.create_user("guest", password=RIGHT)
    client = Client(REMOTE_ADDR="192.0.2.1")
    assert sign_in(client, RIGHT, name="guest")["Location"] == "/console/"
    refused = client.get(reverse("admin:index"), follow=True)
    assert refused.status_code == 403
    assert "guest has no role in the admin" in refused.content.decode()
    assert AuditRecord.objects.filter(action="signed_in", actor="member:guest", detail="password").exists()


def test_an_operator_with_a_shell_ends_the_waiting_time() -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    for _ in range(6):
        sign_in(client, WRONG)
    call_command("axes_reset_username", "eve", verbosity=0)
    assert sign_in(client, RIGHT).status_code == 302
    assert AuditRecord.objects.filter(action="sign_in_unlocked", target="account eve", actor__startswith="shell").exists()


@pytest.mark.parametrize("name", ["", "e" * 151, "eve\0", "éve"])
def test_odd_names_are_refused_like_any_other(name: str) -> None:
    assert sign_in(Client(REMOTE_ADDR="192.0.2.1"), WRONG, name=name).status_code == 200


def test_changing_the_own_password_is_recorded(eve: User) -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    sign_in(client, RIGHT)
    new = "another horse battery"
    fields = {"oldpassword": RIGHT, "password1": new, "password2": new}
    other = Client(REMOTE_ADDR="192.0.2.7")
    sign_in(other, RIGHT)
    assert client.post(reverse("account_change_password"), fields).status_code == 302
    assert client.get(reverse("admin:index")).status_code == 200
    assert other.get(reverse("admin:index")).status_code == 302
    row = AuditRecord.objects.latest("id")
    assert (row.action, row.actor, row.target, row.address) == ("password_changed", "admin:eve", "account eve", "192.0.2.1")
    assert new not in row.detail
