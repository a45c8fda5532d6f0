"""The tenants of a person, and the first page of each."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from sessions_app.accounts.people import own_page
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import RIGHTS, Account
from sessions_app.models import Member


@require_safe
@for_members
def home(request: HttpRequest, by: Account) -> HttpResponse:
    """The tenants of which the account is a member."""
    rows = Member.objects.filter(user_id=by.id).select_related("tenant").order_by("tenant__slug")
    return own_page(request, "agenthost/console/home.html", {"rows": rows, "account": by})


@require_safe
@for_members
def tenant(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    found = rights.own_tenant(by, slug)
    context = {"rights": sorted(right.replace("_", " ") for right in RIGHTS[by.roles[found.pk]])}
    return tenant_page(request, by, found, "tenant", "agenthost/console/tenant.html", context)
