"""Our settings of django-allauth that are code: no open sign-up, sealed secrets, redirects to this server only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, _build_apps_from_settings
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from sessions_app.accounts import invited, second_factor, sign_in
from sessions_app.accounts.people import account, address, own_page
from sessions_app.core.base import second_factor_secrets
from sessions_app.core.base.errors import DomainError
from sessions_app.core.tenancy.sign_ins import Attempt

if TYPE_CHECKING:
    from allauth.socialaccount.models import SocialLogin


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": "The account name or the password is wrong.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def is_safe_url(self, url: str | None) -> bool:
        """Only paths of this server: another host of ``ALLOWED_HOSTS`` may belong to somebody else."""
        return bool(url) and str(url).startswith("/") and url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        signed_in = account(request)
        return reverse("admin:index") if signed_in.is_staff and not signed_in.roles else reverse("console:home")

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:  # noqa: ARG002
        return reverse("accounts:overview")

    def get_client_ip(self, request: HttpRequest) -> str:
        return address(request) or "::"


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no types
    def get_totp_issuer(self) -> str:
        return f"Agenthost {self._get_site_name()}"

    def encrypt(self, text: str) -> str:
        return second_factor_secrets.seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        return second_factor_secrets.unseal(encrypted_text)

    def can_delete_authenticator(self, authenticator: Any) -> bool:
        return second_factor.may_remove(authenticator)


class CompanyAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Sign-in with the company's OpenID provider: for accounts that exist, and for people with an invitation."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:  # noqa: ARG002
        return invited.find(request) is not None

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if sociallogin.is_existing or sociallogin.state.get("process") == "connect" or invited.find(request) is not None:
            return
        name = f"{sociallogin.account.provider}:{sociallogin.account.uid}"[:150]
        sign_in.failed(request, Attempt(name, address(request)), "no account and no invitation")
        raise ImmediateHttpResponse(own_page(request, "agenthost/people/no_account.html", {}, status=403))

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """The new account and its membership, in one transaction."""
        try:
            with transaction.atomic():
                user: User = super().save_user(request, sociallogin, form)
                invited.accept(request, user)
        except DomainError:
            raise ImmediateHttpResponse(own_page(request, "agenthost/people/no_invitation.html", {}, status=404)) from None
        invited.forget(request)
        return user

    def list_apps(self, request: HttpRequest, provider: str | None = None, client_id: str | None = None) -> list[Any]:  # noqa: ARG002
        """Only the provider of the settings: rows of the database could add one without a record."""
        apps = _build_apps_from_settings(provider=provider, client_id=client_id)
        return [app for of_provider in apps.values() for app in of_provider]

    def get_requests_session(self) -> Any:
        session = super().get_requests_session()
        # The provider is the operator's own, but it must not make a web process wait or follow it elsewhere.
        session.trust_env = False
        session.max_redirects = 3
        return session


def company_name() -> str:
    """The name of the company's OpenID provider; "" if none is configured."""
    return str(settings.AGENTHOST_OIDC_NAME) if settings.AGENTHOST_OIDC_ISSUER else ""
