"""The pages at /accounts/. Of django-allauth only what we offer: no sign-up, no e-mail addresses, no password reset by mail."""

from __future__ import annotations

from typing import Any

from allauth.account import views as allauth_views
from allauth.socialaccount.providers import registry
from django.conf import settings
from django.urls import include, path

from sessions_app.accounts import views

own = (
    [
        path("", views.overview, name="overview"),
        path("invitation/", views.invitation, name="invitation"),
    ],
    "accounts",
)

urlpatterns: list[Any] = [
    path("", include(own)),
    path("login/", allauth_views.login, name="account_login"),
    path("logout/", allauth_views.logout, name="account_logout"),
    path("inactive/", allauth_views.account_inactive, name="account_inactive"),
    path("reauthenticate/", allauth_views.reauthenticate, name="account_reauthenticate"),
    path("password/change/", allauth_views.password_change, name="account_change_password"),
    path("password/set/", allauth_views.password_set, name="account_set_password"),
    path("sessions/", views.sessions, name="usersessions_list"),
    path("2fa/", include("allauth.mfa.urls")),
]
if settings.AGENTHOST_OIDC_ISSUER:
    # allauth's own list of addresses, which is not used here, would do this.
    registry.load()
    urlpatterns += [
        path("company/", include("allauth.socialaccount.urls")),
        path("", include("allauth.socialaccount.providers.openid_connect.urls")),
    ]
