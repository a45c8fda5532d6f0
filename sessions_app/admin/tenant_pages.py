"""The further pages of a tenant: exporting and deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import path, reverse

from agents_app import installation
from sessions_app.accounts.people import account, actor, address
from sessions_app.admin import exports
from sessions_app.admin.pages import OperatorAdmin
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.sessions import export_files, exporting, tenant_deletion
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import Right
from sessions_app.core.turns import refusals, tasks
from sessions_app.models import Tenant, TenantDeletion
from sessions_app.presentation import downloads

if TYPE_CHECKING:
    _Pages = OperatorAdmin[Tenant]
else:
    _Pages = object

_DELETION = (
    "Its keys are refused at once, its running turns are stopped, and then everything of it is deleted in batches: sessions with "
    "their messages, files, terminals, keys, webhooks, members and counts of use. This cannot be stopped or undone."
)
KEPT = (
    f"Kept: the records of the audit until you prune them ({installation.manage('prune_audit')})",
    "Kept: a signed certificate of what was deleted",
    "Not reached: your backups, until they expire, and logs and exports that were taken away",
)
"""What a deletion leaves."""


class ConfirmForm(forms.Form):
    """Asks for the tenant's name, so that no click alone deletes a tenant."""

    name = forms.CharField(label="Type the tenant's name to confirm", widget=forms.TextInput({"autocomplete": "off"}))

    def __init__(self, slug: str, *args: Any) -> None:
        super().__init__(*args)
        self._slug = slug

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        if name != self._slug:
            raise forms.ValidationError(f"Nothing was deleted: the name of this tenant is {self._slug}.")
        return name


class TenantPages(_Pages):
    """Pages below a tenant's, for ``TenantAdmin``."""

    def further_urls(self) -> list[Any]:
        views = {"export": self.export_view, "delete-tenant": self.delete_tenant_view}
        return [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=f"sessions_app_tenant_{name}")
            for name, view in views.items()
        ]

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        tenant = self.find_or_404(request, object_id)
        if not rights.as_staff(account(request), Right.EXPORT_SESSIONS, tenant.pk):
            raise PermissionDenied
        form = exports.TenantExportForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                body = export_files.of_tenant(tenant, form.wish())
            except NotPossible as error:
                form.add_error(None, str(error))
            else:
                exporting.begin_tenant(tenant, actor=actor(request), address=address(request), form=form.described())
                return downloads.response(body, f"{tenant.slug}.zip")
        return self.confirm(
            request,
            title=f"Export {tenant.slug}",
            text=exports.TENANT_TEXT,
            rows=[exports.GONE],
            button="Download",
            form=form,
            back=self.link("change", tenant.pk),
        )

    def delete_tenant_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = self.find_or_404(request, object_id)
        if not rights.as_staff(account(request), Right.DELETE_TENANT, tenant.pk):
            raise PermissionDenied
        begun = TenantDeletion.objects.filter(tenant_id=tenant.pk).first()
        if begun is not None:
            return HttpResponseRedirect(_progress_of(begun))
        form = ConfirmForm(tenant.slug, request.POST or None)
        if request.method == "POST" and form.is_valid():
            deletion = tenant_deletion.begin(tenant, actor=actor(request), address=address(request), until=refusals.deadline())
            tasks.ask_for_housekeeping()
            self.message_user(request, f"The deletion of {tenant.slug} has begun.", messages.SUCCESS)
            return HttpResponseRedirect(_progress_of(deletion))
        return self.confirm(
            request,
            title=f"Delete {tenant.slug}?",
            text=_DELETION,
            rows=[*KEPT, "Export it first if somebody may want its data"],
            button="Delete everything",
            danger=True,
            form=form,
            back=self.link("change", tenant.pk),
        )


def _progress_of(deletion: TenantDeletion) -> str:
    return reverse("admin:sessions_app_tenantdeletion_change", args=(deletion.pk,))
