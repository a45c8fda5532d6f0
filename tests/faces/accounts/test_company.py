"""Sign-in with a company's OpenID provider, which is scripted and on a real socket."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import clear_url_caches
from pytest_django import Settings

from sessions_app.core.tenancy import invitations
from sessions_app.models import AuditRecord, Member, Role, Tenant
from tests.fakes.openid_provider import CLIENT, SECRET, OpenIDProvider

pytestmark = pytest.mark.django_db(transaction=True)

LOGIN, CALLBACK = "/accounts/oidc/company/login/", "/accounts/oidc/company/login/callback/"


@pytest.fixture
def provider(settings: Settings) -> Iterator[OpenIDProvider]:
    """The server with the settings that name this provider."""
    with OpenIDProvider() as provider:
        settings.AGENTHOST_OIDC_ISSUER = provider.issuer
        settings.AGENTHOST_OIDC_NAME = "Work"
        app = {"provider_id": "company", "name": "Work", "client_id": CLIENT, "secret": SECRET}
        settings.SOCIALACCOUNT_PROVIDERS = {
            "openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [{**app, "settings": {"server_url": provider.issuer}}]}
        }
        settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "allauth.socialaccount.providers.openid_connect"]
        _reload()
        yield provider
        settings.AGENTHOST_OIDC_ISSUER = ""
        _reload()


def _reload() -> None:
    from allauth.socialaccount.providers import registry

    registry.loaded = False
    registry.provider_map.clear()
    for name in ("sessions_app.accounts.urls", "agenthost.urls"):
        if name in sys.modules:
            importlib.reload(sys.modules[name])
    clear_url_caches()


def invited(role: Role = Role.DEVELOPER) -> Client:
    tenant, _ = Tenant.objects.get_or_create(slug="acme")
    client = Client(REMOTE_ADDR="192.0.2.1")
    client.get(f"/accounts/invitation/?token={invitations.issue(tenant, role, actor='x', address='').token}")
    return client


def sign_in(client: Client, provider: OpenIDProvider) -> Any:
    begun = client.post(LOGIN)
    assert begun["Location"].startswith(f"{provider.issuer}/authorize?")
    return client.get(CALLBACK, provider.sign_in(begun["Location"]))


def test_an_invited_person_joins_with_the_company_and_signs_in_with_it_again(provider: OpenIDProvider) -> None:
    client = invited()
    assert "Join with Work" in client.get("/accounts/invitation/").content.decode()
    assert sign_in(client, provider).status_code == 302
    member = Member.objects.get()
    assert (member.user.username, member.role, member.user.has_usable_password()) == ("ann", "developer", False)
    again = Client(REMOTE_ADDR="192.0.2.2")
    assert sign_in(again, provider)["Location"] == "/console/"
    assert again.get("/console/acme/").status_code == 200
    assert User.objects.count() == 1
    assert AuditRecord.objects.filter(action="signed_in", actor="member:ann", detail="company").count() == 2


def test_a_person_without_account_and_invitation_is_refused_and_recorded(provider: OpenIDProvider) -> None:
    # An account with the same address and name is somebody else's until its owner connects it.
    User.objects.create_user("ann", email="ann@work.example")
    answer = sign_in(Client(REMOTE_ADDR="192.0.2.1"), provider)
    assert answer.status_code == 403
    assert "No account here" in answer.content.decode()
    assert User.objects.count() == 1
    row = AuditRecord.objects.get(action="sign_in_failed")
    assert (row.detail, row.address) == ("no account and no invitation", "192.0.2.1")


def test_an_invitation_that_was_used_meanwhile_makes_no_account(provider: OpenIDProvider) -> None:
    client = invited()
    begun = client.post(LOGIN)
    from sessions_app.models import Invitation

    Invitation.objects.all().delete()
    assert client.get(CALLBACK, provider.sign_in(begun["Location"])).status_code in (403, 404)
    assert not User.objects.exists()


def test_an_answer_without_this_browsers_state_is_refused(provider: OpenIDProvider) -> None:
    """An attacker's own answer, put into somebody else's browser, signs nobody in."""
    attacker, victim = invited(), invited()
    answer = provider.sign_in(attacker.post(LOGIN)["Location"])
    victim.post(LOGIN)
    for query in (answer, {**answer, "state": "guessed"}, {"code": answer["code"]}):
        victim.get(CALLBACK, query)
        assert victim.get("/console/").status_code == 302
    assert not User.objects.exists()


def test_an_answer_works_once(provider: OpenIDProvider) -> None:
    client = invited()
    answer = provider.sign_in(client.post(LOGIN)["Location"])
    client.get(CALLBACK, answer)
    client.post("/accounts/logout/")
    client.get(CALLBACK, answer)
    assert client.get("/console/").status_code == 302


def test_a_code_of_another_browser_does_not_fit_this_ones_verifier(provider: OpenIDProvider) -> None:
    mine, theirs = invited(), invited()
    stolen = provider.sign_in(theirs.post(LOGIN)["Location"])["code"]
    state = provider.sign_in(mine.post(LOGIN)["Location"])["state"]
    mine.get(CALLBACK, {"code": stolen, "state": state})
    assert provider.refused == ["the code verifier does not fit"]
    assert mine.get("/console/").status_code == 302


@pytest.mark.parametrize("change", [{"iss": "https://evil.example"}, {"aud": "another client"}, {"exp": 1}])
def test_a_token_of_another_issuer_or_client_or_time_is_refused(provider: OpenIDProvider, change: dict[str, Any]) -> None:
    provider.token_changes = change
    client = invited()
    sign_in(client, provider)
    assert client.get("/console/").status_code == 302
    assert not User.objects.exists()


def test_opening_the_address_of_the_company_sign_in_starts_nothing(provider: OpenIDProvider) -> None:
    assert Client().get(LOGIN).status_code == 200
    assert Client().get("/accounts/oidc/other/login/").status_code == 404
