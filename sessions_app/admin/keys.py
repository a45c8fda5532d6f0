"""The pages of API keys: list, issuing, limits, rotating, revoking."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables

from sessions_app.accounts.people import account, actor, address
from sessions_app.admin.filters import Field, FilterForm, of_tenant, tenant_field
from sessions_app.admin.pages import OperatorAdmin, badge
from sessions_app.admin.tenants import chosen_again
from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.tenancy import keys, quotas, rights
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.core.turns import refusals
from sessions_app.models import ApiKey, Tenant
from sessions_app.presentation.fields import OVERLAPS, LimitsForm
from sessions_app.presentation.key_forms import NewKeyForm, RotateForm


class IssueForm(NewKeyForm):
    tenant = forms.ModelChoiceField(Tenant.objects.none())

    def __init__(self, by: Account, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tenants = self.fields["tenant"]
        assert isinstance(tenants, forms.ModelChoiceField)
        tenants.queryset = rights.of_staff(by, Right.MANAGE_KEYS, Tenant.objects.order_by("slug"), "pk")
        self.order_fields(["tenant"])


class KeyFilters(FilterForm):
    names = ("tenant", "state")

    def fields(self) -> list[Field]:
        states = [(state, state) for state in keys.STATES]
        return [tenant_field(self.request), Field("state", "State", "select", states)]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        if name == "tenant":
            return of_tenant(rows, value)
        return keys.in_state(rows, value)


@admin.register(ApiKey)
class KeyAdmin(OperatorAdmin[ApiKey]):
    heading = "API keys"
    sees = Right.SEE_KEYS
    adds = changes = Right.MANAGE_KEYS
    list_display = ("shown", "name", "tenant", "scope_list", "agents", "state", "expires", "last_used")
    list_display_links = ("shown",)
    list_filter = (KeyFilters,)
    list_select_related = ("tenant",)
    search_fields = ("prefix__startswith", "name", "tenant__slug")
    search_help_text = "The first characters of a key (up to 11), or part of its name or tenant"
    actions = ("revoke_selected",)
    ordering = ("-id",)

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:  # noqa: ARG002
        return False

    # --- columns ---

    @admin.display(description="key")
    def shown(self, row: ApiKey) -> str:
        return f"{row.prefix}…"

    @admin.display(description="scopes")
    def scope_list(self, row: ApiKey) -> str:
        return ", ".join(keys.shown_scopes(row))

    @admin.display(description="agents")
    def agents(self, row: ApiKey) -> str:
        return "all" if row.allowed_agents is None else ", ".join(row.allowed_agents)

    @admin.display(description="state")
    def state(self, row: ApiKey) -> str:
        state = keys.state_of(row)
        return (
            badge("suspended", "tenant suspended") if state == "active" and row.tenant.suspended_at is not None else badge(state)
        )

    @admin.display(description="expires (UTC)")
    def expires(self, row: ApiKey) -> str:
        return "never" if row.expires_at is None else f"{row.expires_at:%Y-%m-%d %H:%M}"

    @admin.display(description="last used (UTC)")
    def last_used(self, row: ApiKey) -> str:
        return "never" if row.last_used_at is None else f"{row.last_used_at:%Y-%m-%d %H:%M}"

    # --- pages ---

    def get_urls(self) -> list[Any]:
        own = [
            path("<path:object_id>/revoke/", self.admin_site.admin_view(self.revoke_view), name="sessions_app_apikey_revoke"),
            path("<path:object_id>/limits/", self.admin_site.admin_view(self.limits_view), name="sessions_app_apikey_limits"),
            path("<path:object_id>/rotate/", self.admin_site.admin_view(self.rotate_view), name="sessions_app_apikey_rotate"),
        ]
        return own + super().get_urls()

    @method_decorator(sensitive_variables())
    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:  # noqa: ARG002
        self.require(request, "add")
        form = IssueForm(account(request), request.POST or None, initial={"tenant": request.GET.get("tenant", "")})
        if request.method == "POST" and form.is_valid():
            try:
                issued = keys.issue(
                    form.cleaned_data["tenant"],
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
                self.log_addition(request, issued.key, "Issued.")
                return self._show_once(request, issued)
        return self.page(
            request, "agenthost/key_issue.html", {"title": "Issue a key", "form": form, "back": self.link("changelist")}
        )

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        key = self.find_or_404(request, object_id)
        state = keys.state_of(key)
        return self.page(
            request,
            "agenthost/key.html",
            {
                "title": f"{key.prefix}…",
                "subtitle": key.name,
                "key": key,
                "scopes": keys.shown_scopes(key),
                "state": self.state(key),
                "usage": quotas.usage(key.tenant, key),
                "can_limit": state == "active" and self.may(request, "change"),
                "successors": list(key.rotated_to.all()),
                "may_end": self.may(request, "change"),
                "can_rotate": state == "active"
                and key.member_id is None
                and self.may(request, "add")
                and self.may(request, "change"),
                "can_revoke": state != "revoked" and self.may(request, "change"),
            },
        )

    def revoke_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self.find_or_404(request, object_id)
        self.require(request, "change")
        back = self.link("change", key.pk)
        if request.method == "POST":
            self._revoke(request, [key])
            return HttpResponseRedirect(back)
        return self._ask_to_revoke(request, [key], back)

    def limits_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self.find_or_404(request, object_id)
        self.require(request, "change")
        back = self.link("change", key.pk)
        form = LimitsForm(request.POST or None, initial={name: getattr(key, name) for name in map(quotas.column, quotas.NAMES)})
        if request.method == "POST" and form.is_valid():
            if keys.set_limits(key, form.limits, actor=actor(request), address=address(request)):
                self.message_user(request, f"The limits of {key.prefix}… were changed.", messages.SUCCESS)
            return HttpResponseRedirect(back)
        return self.confirm(
            request,
            title=f"Limits of {key.prefix}…",
            text="These limits apply in addition to the tenant's, from the key's next request on.",
            rows=[_line(key)],
            button="Save",
            form=form,
            back=back,
        )

    @method_decorator(sensitive_variables())
    def rotate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self.find_or_404(request, object_id)
        self.require(request, "add")
        self.require(request, "change")
        back = self.link("change", key.pk)
        form = RotateForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            _, overlap = OVERLAPS[form.cleaned_data["overlap"]]
            try:
                issued = keys.rotate(key, overlap, actor=actor(request), address=address(request))
            except InvalidInput as error:
                self.message_user(request, error.detail, messages.ERROR)
                return HttpResponseRedirect(back)
            self.log_addition(request, issued.key, f"Issued as a replacement for {key.prefix}….")
            return self._show_once(request, issued, replaced=key)
        return self.confirm(
            request,
            title=f"Rotate {key.prefix}…?",
            text="A new key with the same rights is issued and shown once. Both keys work until the old one expires.",
            rows=[_line(key)],
            button="Issue the new key",
            form=form,
            back=back,
        )

    @admin.action(description="Revoke the selected keys…", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, chosen: QuerySet[ApiKey]) -> HttpResponse | None:
        if request.POST.get("confirmed") == "yes":
            self._revoke(request, list(chosen))
            return None
        return self._ask_to_revoke(request, list(chosen), self.link("changelist"), action="revoke_selected")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "change")

    def _ask_to_revoke(self, request: HttpRequest, rows: list[ApiKey], back: str, action: str | None = None) -> HttpResponse:
        return self.confirm(
            request,
            title=f"Revoke {rows[0].prefix}…?" if len(rows) == 1 else f"Revoke {len(rows)} keys?",
            text="A revoked key is refused permanently; its streams are closed and its runs are stopped. "
            "To replace a key without an interruption, rotate it.",
            rows=[_line(row) for row in rows],
            button="Revoke",
            danger=True,
            hidden=chosen_again(action, rows),
            back=back,
        )

    def _revoke(self, request: HttpRequest, rows: list[ApiKey]) -> None:
        until, who, where = refusals.deadline(), actor(request), address(request)
        ended = [(row, turns.revoke_key(row, actor=who, address=where, until=until)) for row in rows]
        done = [row for row, refusal in ended if refusal.changed]
        if done:
            self.message_user(request, f"Revoked: {', '.join(f'{row.prefix}…' for row in done)}", messages.SUCCESS)
        else:
            self.message_user(request, "Nothing changed: revoked already.", messages.INFO)
        if remark := refusals.remark(sum(refusal.left for _, refusal in ended)):
            self.message_user(request, remark, messages.WARNING)

    @sensitive_variables()
    def _show_once(self, request: HttpRequest, issued: keys.Issued, replaced: ApiKey | None = None) -> HttpResponse:
        """The response to the POST itself: for a redirect the key would have to be stored somewhere."""
        if replaced is not None:
            replaced.refresh_from_db()
        return self.page(
            request,
            "agenthost/key_issued.html",
            {
                "title": "Your new key",
                "key": issued.key,
                "scopes": keys.shown_scopes(issued.key),
                "raw": issued.raw,
                "replaced": replaced,
                "base": request.build_absolute_uri("/aap/v3"),
                "back": self.link("changelist"),
            },
        )


def _line(key: ApiKey) -> str:
    return f"{key.prefix}… – {key.name} ({key.tenant.slug})"
