"""The frame of a tenant's pages: heading, navigation and what the templates know about the member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from sessions_app.accounts.people import own_page
from sessions_app.console import navigation
from sessions_app.core.tenancy.rights import RIGHTS, Account
from sessions_app.models import Tenant


def tenant_page(
    request: HttpRequest,
    by: Account,
    tenant: Tenant,
    section: str,
    template: str,
    context: Mapping[str, Any],
    status: int = 200,
) -> HttpResponse:
    """A page of the tenant. Its template extends ``agenthost/console/base.html`` and gets:

    ``tenant``, ``role``, ``may`` (the names of the member's rights: ``{% if "manage_keys" in may %}``) and ``context``.
    ``section``: the entry of the navigation that is current.
    """
    role = by.roles[tenant.pk]
    frame = {
        "tenant": tenant,
        "role": role,
        "may": {right.value for right in RIGHTS[role]},
        "navigation": navigation.links(by, tenant, section),
    }
    return own_page(request, template, {**frame, **context}, status=status)


def confirm_page(
    request: HttpRequest,
    by: Account,
    tenant: Tenant,
    section: str,
    *,
    title: str,
    text: str,
    button: str,
    back: str,
    form: forms.Form | None = None,
    danger: bool = False,
    status: int = 200,
) -> HttpResponse:
    """The page that asks before an action, with the fields that it needs. Its button posts to the page's own address."""
    context = {"title": title, "text": text, "button": button, "back": back, "form": form, "danger": danger}
    return tenant_page(request, by, tenant, section, "agenthost/console/confirm.html", context, status)
