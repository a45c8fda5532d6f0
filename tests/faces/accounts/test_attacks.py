"""Attacks on sign-in: enumeration, guessing, fixation, redirects, second factors."""

from __future__ import annotations

import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django import Settings

from sessions_app.models import AuditRecord, Staff, StaffRole

pytestmark = pytest.mark.django_db(transaction=True)

RIGHT, WRONG = "correct horse battery", "wrong horse battery"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture(autouse=True)
def _fast_hashes(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ann(transactional_db: None) -> User:
    return User.objects.create_user("ann", password=RIGHT)


def sign_in(client: Client, password: str = RIGHT, name: str = "ann", **fields: str) -> Any:
    return client.post(reverse("account_login"), {"login": name, "password": password, **fields})


def code() -> str:
    return str(format_hotp_value(hotp_value(SECRET, int(time.time()) // 30)))


def test_unknown_disabled_and_passwordless_accounts_are_refused_with_the_same_page(ann: User) -> None:
    User.objects.create_user("off", password=RIGHT, is_active=False)
    User.objects.create_user("bare")
    pages: set[str] = set()
    for name, password in (("ann", WRONG), ("nobody", WRONG), ("off", RIGHT), ("off", WRONG), ("bare", WRONG)):
        answer = sign_in(Client(REMOTE_ADDR=f"192.0.2.{len(pages) + len(name)}"), password, name)
        assert answer.status_code == 200
        page = answer.content.decode().replace(f'value="{name}"', "")
        pages.add("".join(line for line in page.splitlines() if "csrf" not in line))
    assert len(pages) == 1


def test_an_unknown_account_costs_as_many_hashes_as_a_known_one(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib.auth.hashers import MD5PasswordHasher

    encoded: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, *given: Any) -> str:
        encoded.append("")
        return encode(self, *given)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    counts = []
    for name in ("ann", "nobody"):
        encoded.clear()
        sign_in(Client(REMOTE_ADDR="192.0.2.9"), WRONG, name)
        counts.append(len(encoded))
    assert counts[0] == counts[1] > 0


def test_a_session_that_an_attacker_planted_is_not_the_signed_in_one(ann: User) -> None:
    client = Client()
    client.get(f"/accounts/invitation/?token={'x' * 43}")
    planted = client.session.session_key
    assert planted
    sign_in(client)
    assert client.session.session_key != planted
    attacker = Client()
    attacker.cookies["sessionid"] = planted
    assert attacker.get("/console/").status_code == 302


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "http:evil.example", "javascript:alert(1)", "\t//evil"],
)
def test_a_sign_in_leads_to_no_other_site(ann: User, target: str) -> None:
    answer = sign_in(Client(), next=target)
    assert answer["Location"] == "/console/"
    assert sign_in(Client(), next="/console/acme/")["Location"] == "/console/acme/"


def test_a_second_factor_is_asked_and_its_wrong_codes_count_as_failures(ann: User) -> None:
    TOTP.activate(ann, SECRET)
    client = Client(REMOTE_ADDR="192.0.2.1")
    assert sign_in(client)["Location"] == "/accounts/2fa/authenticate/"
    assert client.get("/console/").status_code == 302
    answers = [client.post("/accounts/2fa/authenticate/", {"code": "000000"}).status_code for _ in range(6)]
    assert answers[0] == 200
    assert answers[-1] == 429
    assert client.post("/accounts/2fa/authenticate/", {"code": code()}).status_code == 429
    assert AuditRecord.objects.filter(action="sign_in_failed", detail="wrong code", target="account ann").exists()
    call_command("axes_reset_username", "ann", verbosity=0)
    assert client.post("/accounts/2fa/authenticate/", {"code": code()})["Location"] == "/console/"
    assert AuditRecord.objects.filter(action="signed_in", detail="password, totp").exists()


def test_who_has_only_recovery_codes_is_told_where_to_type_one_and_gets_them_back_with_a_next_step(ann: User) -> None:
    TOTP.activate(ann, SECRET)
    saved = RecoveryCodes.activate(ann).get_unused_codes()
    client = Client(REMOTE_ADDR="192.0.2.9")
    asked = client.get(sign_in(client)["Location"]).content.decode()
    assert "or one of your recovery codes" in asked
    assert "ask the operator of this server" in asked
    assert client.post(reverse("mfa_authenticate"), {"code": saved[0]}).status_code == 302
    assert client.get("/accounts/").status_code == 200
    client.post(reverse("account_reauthenticate"), {"password": RIGHT})
    shown = client.get("/accounts/2fa/recovery-codes/").content.decode()
    assert saved[1] in shown
    assert 'href="/accounts/">Back to your account</a>' in shown


def test_a_code_of_a_second_factor_works_once_on_all_webs(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    TOTP.activate(ann, SECRET)
    # The code stays the same while the test runs.
    now = time.time()
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time.time", lambda: now)
    typed, clients = code(), [Client(REMOTE_ADDR=f"192.0.2.{number}") for number in (1, 2)]
    for client in clients:
        sign_in(client)
    assert clients[0].post("/accounts/2fa/authenticate/", {"code": typed})["Location"] == "/console/"
    # Another process has its own memory.
    cache.clear()
    refused = clients[1].post("/accounts/2fa/authenticate/", {"code": typed})
    assert refused.status_code == 200
    assert clients[1].get("/console/").status_code == 302
    before = str(format_hotp_value(hotp_value(SECRET, int(now) // 30 - 1)))
    assert clients[1].post("/accounts/2fa/authenticate/", {"code": before}).status_code == 200
    after = str(format_hotp_value(hotp_value(SECRET, int(now) // 30 + 1)))
    assert clients[1].post("/accounts/2fa/authenticate/", {"code": after})["Location"] == "/console/"


def test_secrets_of_second_factors_are_sealed_in_the_database_and_again_with_a_new_key(ann: User, settings: Settings) -> None:
    TOTP.activate(ann, SECRET)
    stored = repr(list(Authenticator.objects.values()))
    assert SECRET not in stored
    assert "sealed:" in stored
    older = settings.AGENTHOST_KEY_RING
    settings.AGENTHOST_KEY_RING = [b"n" * 32, *older]
    call_command("reseal_secrets", verbosity=0)
    settings.AGENTHOST_KEY_RING = [b"n" * 32]
    assert Authenticator.objects.get().wrap().validate_code(code())


def test_staff_set_up_a_second_factor_before_anything_is_shown(settings: Settings, ann: User) -> None:
    settings.AGENTHOST_STAFF_SECOND_FACTOR = True
    Staff.objects.create(user=ann, role=StaffRole.AUDITOR)
    client = Client()
    assert sign_in(client)["Location"] == "/admin/"
    for page in ("/admin/", "/admin/sessions_app/tenant/", "/console/"):
        assert client.get(page)["Location"] == "/accounts/2fa/"
    page = client.get("/accounts/2fa/").content.decode()
    assert "requires a second factor" in page
    assert client.get("/accounts/2fa/totp/activate/")["Location"].startswith("/accounts/reauthenticate/")
    assert client.post("/accounts/reauthenticate/", {"password": RIGHT}).status_code == 302
    form = client.get("/accounts/2fa/totp/activate/")
    assert form.status_code == 200
    secret = form.context["form"].secret
    now = str(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))
    assert client.post("/accounts/2fa/totp/activate/", {"code": now}).status_code == 302
    assert client.get("/admin/").status_code == 200
    # And they keep one.
    client.post("/accounts/2fa/totp/deactivate/")
    assert Authenticator.objects.filter(user=ann, type="totp").exists()
    actions = set(AuditRecord.objects.filter(target="account ann").values_list("action", flat=True))
    assert {"second_factor_added", "signed_in"} <= actions


def test_there_is_no_sign_up_and_no_password_reset(ann: User) -> None:
    for page in ("signup/", "password/reset/", "email/", "confirm-email/", "login/code/", "2fa/webauthn/signup/", "company/"):
        assert Client().get(f"/accounts/{page}").status_code == 404, page
    names = {name for name in get_resolver().reverse_dict if isinstance(name, str)}
    assert "account_signup" not in names


def test_a_person_ends_other_sessions_and_only_their_own(ann: User) -> None:
    User.objects.create_user("bob", password=RIGHT)
    here, there, bobs = Client(REMOTE_ADDR="192.0.2.1"), Client(REMOTE_ADDR="192.0.2.2"), Client(REMOTE_ADDR="192.0.2.3")
    sign_in(here)
    sign_in(there)
    sign_in(bobs, name="bob")
    from allauth.usersessions.models import UserSession

    theirs = UserSession.objects.get(user__username="bob")
    here.post("/accounts/sessions/", {"session": str(theirs.pk)})
    assert bobs.get("/console/").status_code == 200
    page = here.get("/accounts/sessions/").content.decode()
    assert "192.0.2.2" in page
    assert "192.0.2.3" not in page
    here.post("/accounts/sessions/")
    assert there.get("/console/").status_code == 302
    assert here.get("/console/").status_code == 200
    assert bobs.get("/console/").status_code == 200
