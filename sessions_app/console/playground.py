"""The playground: a page that talks to agents over AAP and AHP, and the short-lived token that it does so with.

The page is a client like any other: it uses the public protocols only, from the member's browser. What it gets from here is the
token, which is bound to the member, the tenant and the page's origin.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST, require_safe

from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.console.scripts import for_scripts, page_origin
from sessions_app.core.base.caller import READ, WRITE
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import members, rights, tokens
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Member, Tenant

_NEEDED: Mapping[str, frozenset[Right]] = {
    "meta:read": frozenset({Right.SEE_TENANT}),
    READ: frozenset({Right.SEE_SESSIONS, Right.READ_TRANSCRIPTS}),
    # One scope of the protocols allows all of this.
    WRITE: frozenset({Right.USE_AGENTS, Right.STOP_TURNS, Right.DELETE_SESSIONS}),
}
"""The rights that a member needs for each scope of a token."""


@require_safe
@for_members
def page(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    found = rights.own_tenant(by, slug, Right.READ_TRANSCRIPTS)
    scopes = _scopes(by, found)
    context = {
        "tenants": [row.tenant for row in Member.objects.filter(user_id=by.id).select_related("tenant").order_by("tenant__slug")],
        "writes": WRITE in scopes,
    }
    return tenant_page(request, by, found, "playground", "agenthost/console/playground.html", context)


@sensitive_variables()
@require_POST
@for_scripts
def token(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    """Mint a token for the page that asks, with the scopes that the member's role allows."""
    found = rights.own_tenant(by, slug, Right.READ_TRANSCRIPTS)
    if found.suspended_at is not None:
        raise NotPossible("the tenant is suspended: its agents answer nobody until the operator ends this")
    scopes = _scopes(by, found)
    with members.keeping_role(by, found):
        minted = tokens.mint_for_member(found, request.user, scopes=scopes, origin=page_origin(request))  # type: ignore[arg-type]
    return JsonResponse({"token": minted.raw, "seconds": tokens.USUAL, "scopes": minted.scopes})


def _scopes(by: Account, tenant: Tenant) -> list[str]:
    return [scope for scope, needed in _NEEDED.items() if all(rights.as_member(by, right, tenant.pk) for right in needed)]
