"""The pages of tenants: list, creating, changing, suspending, resuming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables

from sessions_app.accounts import mail
from sessions_app.accounts.people import account, actor, address
from sessions_app.admin.pages import OperatorAdmin, badge
from sessions_app.admin.tenant_pages import TenantPages
from sessions_app.core import turns
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import invitations, keys, members, quotas, rights, tenants
from sessions_app.core.tenancy.rights import Right
from sessions_app.core.turns import refusals
from sessions_app.models import ApiKey, Role, Tenant, TenantDeletion
from sessions_app.presentation.fields import AgentsField, offer_agents, tenant_help_texts

_SUSPENSION = (
    "All keys of the tenant are refused from now on, and its running turns are cancelled. "
    "Nothing is deleted; after resuming, keys and sessions work as before."
)

_LIMITS = tuple(quotas.column(name) for name in quotas.NAMES)


if TYPE_CHECKING:
    _Form = forms.ModelForm[Tenant]
else:
    _Form = forms.ModelForm


class TenantForm(_Form):
    allowed_agents = AgentsField(help_text="None checked: every agent of this server, including later ones.")

    class Meta:
        model = Tenant
        fields = ("slug", "title", "allowed_agents", *_LIMITS, "session_retention_days")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_agents(self, self.instance.allowed_agents)
        # Without the permission to change, the form has no fields.
        for column, text in tenant_help_texts().items():
            if column in self.fields:
                self.fields[column].help_text = text

    def clean_session_retention_days(self) -> int | None:
        days: int | None = self.cleaned_data["session_retention_days"]
        if days is not None and not 1 <= days <= tenants.LONGEST_RETENTION_DAYS:
            raise forms.ValidationError(f"Give 1 to {tenants.LONGEST_RETENTION_DAYS} days, or leave it empty.")
        return days


class InviteForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices, initial=Role.OWNER)
    email = forms.EmailField(required=False, label="E-mail address (optional)")


@admin.register(Tenant)
class TenantAdmin(TenantPages, OperatorAdmin[Tenant]):
    form = TenantForm
    fieldsets = (
        (None, {"fields": ("slug", "title", "allowed_agents")}),
        ("Limits", {"fields": _LIMITS}),
        ("Retention", {"fields": ("session_retention_days",)}),
    )
    change_form_template = "agenthost/tenant.html"
    heading = "Tenants"
    sees = Right.SEE_TENANT
    adds = Right.CREATE_TENANTS
    changes = Right.CHANGE_TENANT
    tenant_path = "pk"
    list_display = ("slug", "title", "state", "agents", "active_keys", "created")
    list_display_links = ("slug",)
    search_fields = ("slug", "title")
    search_help_text = "Part of a name or title"
    actions = ("suspend_selected", "resume_selected")
    ordering = ("slug",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        active = ApiKey.objects.filter(keys.active(), tenant=OuterRef("pk")).order_by().values("tenant")
        active = active.annotate(number=Count("pk"))
        begun = TenantDeletion.objects.filter(tenant_id=OuterRef("pk"))
        return (
            super()
            .get_queryset(request)
            .annotate(
                # Not a join: it would count the keys of all tenants for each page.
                key_count=Coalesce(Subquery(active.values("number")), 0),
                deletion_begun=Exists(begun),
                deletion_finished=Exists(begun.filter(finished_at__isnull=False)),
            )
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:  # noqa: ARG002
        # Commands and audit records refer to a tenant by its slug.
        return () if obj is None else ("slug",)

    @admin.display(description="state")
    def state(self, row: Tenant) -> str:
        if getattr(row, "deletion_begun", False):
            return badge("done", "deleted") if getattr(row, "deletion_finished", False) else badge("running", "being deleted")
        return (
            badge("active")
            if row.suspended_at is None
            else badge("suspended", f"suspended since {row.suspended_at:%Y-%m-%d %H:%M}")
        )

    @admin.display(description="allowed agents")
    def agents(self, row: Tenant) -> str:
        return "all" if row.allowed_agents is None else ", ".join(row.allowed_agents)

    @admin.display(description="active keys")
    def active_keys(self, row: Tenant) -> int:
        return int(getattr(row, "key_count", 0))

    @admin.display(description="created (UTC)")
    def created(self, row: Tenant) -> str:
        return f"{row.created_at:%Y-%m-%d %H:%M}"

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        who, where = actor(request), address(request)
        agents = form.cleaned_data["allowed_agents"]
        if not change:
            created, _ = tenants.create(obj.slug, obj.title, actor=who, address=where)
            if agents is not None:
                tenants.change(created, title=obj.title, allowed_agents=agents, actor=who, address=where)
            # Django continues with the form's own object.
            obj.pk, obj.created_at, obj._state.adding = created.pk, created.created_at, False
        else:
            tenants.change(obj, title=obj.title, allowed_agents=agents, actor=who, address=where)
        limits, days = quotas.own_limits(obj), obj.session_retention_days
        tenants.set_limits(obj, limits, session_retention_days=days, actor=who, address=where)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        tenant = self.get_object(request, object_id)
        usage = None if tenant is None else quotas.usage(tenant)
        by = account(request)
        deletion = None if tenant is None else TenantDeletion.objects.filter(tenant_id=tenant.pk).first()
        links = {
            "deletion": deletion,
            "may_export": deletion is None and rights.as_staff(by, Right.EXPORT_SESSIONS),
            "may_delete": deletion is None and rights.as_staff(by, Right.DELETE_TENANT),
            "may_change": deletion is None and self.may(request, "change"),
            "may_issue": deletion is None and rights.as_staff(by, Right.MANAGE_KEYS),
            "may_invite": deletion is None and rights.as_staff(by, Right.MANAGE_MEMBERS),
        }
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "usage": usage, **links})

    def response_add(self, request: HttpRequest, obj: Tenant, post_url_continue: str | None = None) -> HttpResponse:
        """The tenant's own page, where its owner is invited."""
        if "_addanother" in request.POST or "_continue" in request.POST:
            return super().response_add(request, obj, post_url_continue)
        text = f"The tenant {obj.slug} was added. Nobody belongs to it yet: invite its owner, or issue a key."
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(self.link("change", obj.pk))

    # --- members ---

    @method_decorator(sensitive_variables())
    def invite_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make an invitation and show its link, once: the response to the POST itself."""
        tenant = self.find_or_404(request, object_id)
        by, back = account(request), self.link("change", tenant.pk)
        if not rights.as_staff(by, Right.MANAGE_MEMBERS, tenant.pk):
            raise PermissionDenied
        form = InviteForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            role, email = members.role_of(form.cleaned_data["role"]), form.cleaned_data["email"]
            try:
                issued = invitations.invite(by, tenant, role, email, actor=actor(request), address=address(request))
            except NotPossible as error:
                form.add_error(None, str(error))
            else:
                link = request.build_absolute_uri(f"{reverse('accounts:invitation')}?token={issued.token}")
                mailed = mail.send_invitation(issued.invitation, link)
                context = {
                    "title": "The invitation",
                    "invitation": issued.invitation,
                    "link": link,
                    "mailed": mailed,
                    "back": back,
                }
                return self.page(request, "agenthost/invited.html", context)
        rows = [
            f"{row.user.get_username()}: {row.role}" for row in tenant.members.select_related("user").order_by("user__username")
        ]
        return self.confirm(
            request,
            title=f"Invite somebody to {tenant.slug}",
            text="The link is shown once, and works once, for seven days. Members now:" if rows else "It has no members yet.",
            rows=rows,
            button="Make the link",
            form=form,
            back=back,
        )

    # --- suspending and resuming ---

    def has_suspend_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "change")

    def get_urls(self) -> list[Any]:
        own = [
            path("<path:object_id>/invite/", self.admin_site.admin_view(self.invite_view), name="sessions_app_tenant_invite"),
            path("<path:object_id>/suspend/", self.admin_site.admin_view(self.suspend_view), name="sessions_app_tenant_suspend"),
            path("<path:object_id>/resume/", self.admin_site.admin_view(self.resume_view), name="sessions_app_tenant_resume"),
        ]
        return own + self.further_urls() + super().get_urls()

    def suspend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = self.find_or_404(request, object_id)
        self.require(request, "change")
        back = self.link("change", tenant.pk)
        if request.method == "POST":
            self._suspend(request, [tenant])
            return HttpResponseRedirect(back)
        return self._ask_to_suspend(request, [tenant], back)

    def resume_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = self.find_or_404(request, object_id)
        self.require(request, "change")
        back = self.link("change", tenant.pk)
        if request.method == "POST":
            self._resume(request, [tenant])
            return HttpResponseRedirect(back)
        return self.confirm(
            request,
            title=f"Resume {tenant.slug}?",
            text="Its keys are accepted again from now on.",
            rows=[str(tenant)],
            button="Resume",
            back=back,
        )

    @admin.action(description="Suspend the selected tenants…", permissions=["suspend"])
    def suspend_selected(self, request: HttpRequest, chosen: QuerySet[Tenant]) -> HttpResponse | None:
        if request.POST.get("confirmed") == "yes":
            self._suspend(request, list(chosen))
            return None
        return self._ask_to_suspend(request, list(chosen), self.link("changelist"), action="suspend_selected")

    @admin.action(description="Resume the selected tenants", permissions=["suspend"])
    def resume_selected(self, request: HttpRequest, chosen: QuerySet[Tenant]) -> None:
        self._resume(request, list(chosen))

    def _ask_to_suspend(self, request: HttpRequest, rows: list[Tenant], back: str, action: str | None = None) -> HttpResponse:
        return self.confirm(
            request,
            title=f"Suspend {rows[0].slug}?" if len(rows) == 1 else f"Suspend {len(rows)} tenants?",
            text=_SUSPENSION,
            rows=[f"{row.slug} – {row.title}" if row.title else row.slug for row in rows],
            button="Suspend",
            danger=True,
            hidden=chosen_again(action, rows),
            back=back,
        )

    def _suspend(self, request: HttpRequest, rows: list[Tenant]) -> None:
        until, who, where = refusals.deadline(), actor(request), address(request)
        ended = [(row.slug, turns.suspend_tenant(row, actor=who, address=where, until=until)) for row in rows]
        done = [slug for slug, refusal in ended if refusal.changed]
        self._report(request, done, "Suspended", "Nothing changed: suspended already.")
        if remark := refusals.remark(sum(refusal.left for _, refusal in ended)):
            self.message_user(request, remark, messages.WARNING)

    def _resume(self, request: HttpRequest, rows: list[Tenant]) -> None:
        done = [row.slug for row in rows if tenants.resume(row, actor=actor(request), address=address(request))]
        self._report(request, done, "Resumed", "Nothing changed: not suspended.")

    def _report(self, request: HttpRequest, done: list[str], action: str, unchanged: str) -> None:
        if done:
            self.message_user(request, f"{action}: {', '.join(done)}.", messages.SUCCESS)
        else:
            self.message_user(request, unchanged, messages.INFO)


def chosen_again(action: str | None, rows: list[Any]) -> list[tuple[str, str]]:
    """The hidden fields that repeat a list's action on the same rows after the confirmation."""
    if action is None:
        return []
    chosen = [(ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows]
    return [("action", action), ("confirmed", "yes"), *chosen]
