"""Authentication: from the Authorization header to a caller (A2)."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.tenancy import credentials

ANYBODY = Caller(tenant=0, key=0, key_prefix="", scopes=frozenset({"meta:read"}))
"""A reader of a public /meta without a key. No row belongs to tenant 0."""


class KeyAuthentication(BaseAuthentication):
    """Sets ``request.auth`` to the caller. NotAuthenticated without a valid key or token, OriginRefused for a token
    of another origin."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Caller]:
        scheme, _, raw = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated
        caller = credentials.authenticate(raw.strip())
        if caller.origin:
            sent = request.headers
            credentials.require_origin(
                caller, sent=sent.get("Origin"), fetch_site=sent.get("Sec-Fetch-Site"), host=sent.get("Host", "")
            )
        return AnonymousUser(), caller

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return "Bearer"


class PublicMetaAuthentication(KeyAuthentication):
    """The same, but no key is needed if the operator made /meta public. A wrong key is still refused."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Caller]:
        if settings.AGENTHOST_PUBLIC_META and "Authorization" not in request.headers:
            return AnonymousUser(), ANYBODY
        return super().authenticate(request)
