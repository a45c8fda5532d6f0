"""The API keys of a tenant: list, making, limits, rotating, revoking."""

from __future__ import annotations

import json
import shlex
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from agents_app import registry
from sessions_app.accounts.people import actor, address
from sessions_app.console import paging, quota_rows
from sessions_app.console.pages import confirm_page, tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core import turns
from sessions_app.core.base.caller import OF_OWNERS
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.tenancy import keys, quotas, rights
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import ApiKey, Tenant
from sessions_app.presentation.fields import OVERLAPS, LimitsForm
from sessions_app.presentation.key_forms import NewKeyForm, RotateForm

_form_methods = require_http_methods(["GET", "HEAD", "POST"])


@require_safe
@for_members
def index(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_KEYS)
    state = request.GET.get("state", "")
    listed = paging.page(
        request, lambda before, most: keys.of_tenant(tenant.pk, state=state, before=before, most=most), lambda row: row.pk
    )
    context = {"listed": listed, "rows": [_Shown(row) for row in listed.rows], "state": state, "states": keys.STATES}
    return tenant_page(request, by, tenant, "keys", "agenthost/console/keys.html", context)


@sensitive_variables()
@_form_methods
@for_members
def new(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.MANAGE_KEYS)
    without = () if rights.as_member(by, Right.MANAGE_MEMBERS, tenant.pk) else OF_OWNERS
    form = NewKeyForm(request.POST or None, agents=tenant.allowed_agents, without=without)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            rights.require_scopes(by, tenant, form.cleaned_data["scopes"])
            try:
                issued = keys.issue(
                    tenant,
                    name=form.cleaned_data["name"],
                    scopes=form.cleaned_data["scopes"],
                    expires_at=form.expires_at,
                    allowed_agents=form.cleaned_data["allowed_agents"],
                    actor=actor(request),
                    address=address(request),
                    limits=form.limits,
                )
            except InvalidInput as error:
                for fault in error.faults:
                    form.add_error(str(fault.path[0]), fault.detail)
            else:
                return _show_once(request, by, tenant, issued)
    context = {"form": form, "limit_names": [quotas.column(name) for name in quotas.NAMES]}
    return tenant_page(request, by, tenant, "keys", "agenthost/console/key_new.html", context, status)


@require_safe
@for_members
def one(request: HttpRequest, by: Account, slug: str, number: int) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_KEYS)
    key = keys.find(tenant.pk, number)
    context = {
        "key": _Shown(key),
        "quotas": quota_rows.rows(quotas.usage(tenant, key)),
        "successors": list(key.rotated_to.all()),
    }
    return tenant_page(request, by, tenant, "keys", "agenthost/console/key.html", context)


@_form_methods
@for_members
def limits(request: HttpRequest, by: Account, slug: str, number: int) -> HttpResponse:
    tenant, key, back = _managed(by, slug, number)
    names = [quotas.column(name) for name in quotas.NAMES]
    form = LimitsForm(request.POST or None, initial={name: getattr(key, name) for name in names})
    if request.method == "POST" and form.is_valid():
        if keys.set_limits(key, form.limits, actor=actor(request), address=address(request)):
            messages.success(request, f"The limits of {key.prefix}… were changed.")
        return HttpResponseRedirect(back)
    return confirm_page(
        request,
        by,
        tenant,
        "keys",
        title=f"Limits of {key.prefix}…",
        text="These limits apply in addition to the tenant's, from the key's next request on.",
        button="Save",
        back=back,
        form=form,
        status=422 if form.is_bound else 200,
    )


@sensitive_variables()
@_form_methods
@for_members
def rotate(request: HttpRequest, by: Account, slug: str, number: int) -> HttpResponse:
    tenant, key, back = _managed(by, slug, number)
    # The new key is shown.
    rights.require_scopes(by, tenant, keys.shown_scopes(key))
    form = RotateForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        _, overlap = OVERLAPS[form.cleaned_data["overlap"]]
        try:
            issued = keys.rotate(key, overlap, actor=actor(request), address=address(request))
        except InvalidInput as error:
            messages.error(request, error.faults[0].detail)
            return HttpResponseRedirect(back)
        return _show_once(request, by, tenant, issued, replaced=key)
    return confirm_page(
        request,
        by,
        tenant,
        "keys",
        title=f"Rotate {key.prefix}… ({key.name})?",
        text="A new key with the same rights is made and shown once. Both keys work until the old one expires.",
        button="Make the new key",
        back=back,
        form=form,
        status=422 if form.is_bound else 200,
    )


@_form_methods
@for_members
def revoke(request: HttpRequest, by: Account, slug: str, number: int) -> HttpResponse:
    tenant, key, back = _managed(by, slug, number)
    if request.method != "POST":
        return confirm_page(
            request,
            by,
            tenant,
            "keys",
            title=f"Revoke {key.prefix}… ({key.name})?",
            text="A revoked key is refused permanently; its streams are closed and its runs are stopped. "
            "To replace a key without an interruption, rotate it.",
            button="Revoke",
            back=back,
            danger=True,
        )
    refusal = turns.revoke_key(key, actor=actor(request), address=address(request))
    if refusal.changed:
        messages.success(request, f"{key.prefix}… was revoked.")
    else:
        messages.info(request, "Nothing changed: it was revoked before.")
    if refusal.remark:
        messages.warning(request, refusal.remark)
    return HttpResponseRedirect(back)


def _managed(by: Account, slug: str, number: int) -> tuple[Tenant, ApiKey, str]:
    tenant = rights.own_tenant(by, slug, Right.MANAGE_KEYS)
    return tenant, keys.find(tenant.pk, number), reverse("console:key", args=[slug, number])


@sensitive_variables()
def _show_once(
    request: HttpRequest, by: Account, tenant: Tenant, issued: keys.Issued, replaced: ApiKey | None = None
) -> HttpResponse:
    """The response to the POST itself: for a redirect the key would have to be stored somewhere."""
    base = request.build_absolute_uri("/").rstrip("/")
    context = {
        "key": _Shown(issued.key),
        "raw": issued.raw,
        "replaced": replaced,
        "lines": commands(base, issued.raw, keys.shown_scopes(issued.key), _first_agent(tenant, issued.key)),
    }
    return tenant_page(request, by, tenant, "keys", "agenthost/console/key_issued.html", context)


def _first_agent(tenant: Tenant, key: ApiKey) -> str:
    names = [
        name
        for name in registry.agents()
        if (tenant.allowed_agents is None or name in tenant.allowed_agents)
        and (key.allowed_agents is None or name in key.allowed_agents)
    ]
    return names[0] if names else ""


_TRIED = (
    ("meta:read", "/aap/v3/meta"),
    ("sessions:read", "/aap/v3/sessions"),
    ("webhooks", "/api/webhooks"),
    ("keys", "/api/keys"),
    ("use", "/api/use"),
    ("members", "/api/members"),
    ("audit", "/api/audit"),
)


def commands(base: str, raw: str, scopes: list[str], agent: str) -> str:
    """Shell lines that try the key with what its scopes allow. Pure."""
    bearer = f"-H {shlex.quote(f'Authorization: Bearer {raw}')}"
    everything = "*" in scopes
    if agent and (everything or "sessions:write" in scopes):
        created = f'{{"agent":{{"name":{json.dumps(agent)}}}}}'
        message = '{"messages":[{"role":"user","content":"Hello!"}],"stream":"delta"}'
        as_json = "-H 'Content-Type: application/json'"
        return (
            f"SESSION=$(curl -sS {shlex.quote(f'{base}/aap/v3/sessions')} \\\n  {bearer} \\\n  {as_json} \\\n"
            f'  -d {shlex.quote(created)} | sed \'s/.*"sessionId": *"\\([^"]*\\)".*/\\1/\')\n'
            f"curl -sSN {shlex.quote(base)}/aap/v3/sessions/$SESSION/turns \\\n  {bearer} \\\n  {as_json} \\\n"
            f"  -d {shlex.quote(message)}"
        )
    for scope, path in _TRIED:
        if everything or scope in scopes:
            return f"curl -sS {shlex.quote(base + path)} {bearer}"
    return ""


class _Shown:
    """A key for the templates."""

    def __init__(self, row: ApiKey) -> None:
        self.row = row
        self.state = keys.state_of(row)
        self.scopes = keys.shown_scopes(row)
        self.agents: Any = row.allowed_agents
