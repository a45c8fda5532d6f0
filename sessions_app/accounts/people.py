"""Who sends a request of a page, and the protections of the pages' responses."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse

from sessions_app.core.tenancy import audit, rights, sign_ins
from sessions_app.core.tenancy.rights import Account

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and no script or style inside a page counts: what users and models write stays text."""


def account(request: HttpRequest) -> Account:
    """The signed-in account and its rights."""
    return rights.account_of(request.user)


def actor(request: HttpRequest) -> str:
    """The actor name in audit records."""
    if not request.user.is_authenticated:
        return sign_ins.ANYBODY
    return audit.actor_of(request.user.get_username(), is_staff=account(request).is_staff)


def address(request: HttpRequest) -> str:
    """The client's address. The server has already evaluated the headers of trusted proxies."""
    return str(request.META.get("REMOTE_ADDR") or "")


def protect(response: HttpResponseBase) -> None:
    """Set the headers of a page: nothing external is loaded, no displayed content runs, nothing is cached."""
    response["Content-Security-Policy"] = POLICY
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "same-origin"


def own_page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """Render one of our own pages with these headers."""
    response = TemplateResponse(request, template, context, status=status).render()
    protect(response)
    return response
