"""The page of the audit log, read-only and searchable."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import path

from sessions_app.admin import audit_file
from sessions_app.admin.filters import Field, FilterForm, of_tenant, since, tenant_field, until
from sessions_app.admin.pages import ReadOnlyAdmin
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import audit_search
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import AuditRecord

_OLDER = "Choose an earlier day as “until” to search older records, or give the complete actor or target."


def action_text(action: str) -> str:
    return action.replace("_", " ")


class AuditFilters(FilterForm):
    names = ("tenant", "action", "since", "until")

    def fields(self) -> list[Field]:
        return [
            tenant_field(self.request),
            Field("action", "Action", "select", [(action.value, action_text(action)) for action in Action]),
            Field("since", "From (UTC)", "date"),
            Field("until", "Until (UTC)", "date"),
        ]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name:
            case "tenant":
                return of_tenant(rows, value)
            case "action":
                return rows.filter(action=value)
            case "since":
                return since(rows, "at", value)
            case _:
                return until(rows, "at", value)


@admin.register(AuditRecord)
class AuditAdmin(ReadOnlyAdmin[AuditRecord]):
    heading = "Audit"
    sees = Right.SEE_AUDIT
    change_list_template = "agenthost/audit.html"
    list_display = ("when", "who", "what", "target", "tenant", "address", "detail")
    list_display_links = None
    list_filter = (AuditFilters,)
    list_select_related = ("tenant",)
    search_fields = ("actor",)
    search_help_text = "A complete actor or target, or part of an actor, target or address of newer records"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditRecord], search_term: str
    ) -> tuple[QuerySet[AuditRecord], bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        newer = until(AuditRecord.objects.all(), "at", request.GET.get("until", ""))
        found, oldest = audit_search.matching(newer, queryset, term)
        if oldest is not None:
            self.message_user(
                request, f"Parts of names were searched back to {oldest:%Y-%m-%d %H:%M} (UTC). {_OLDER}", messages.INFO
            )
        return queryset.filter(pk__in=found), False

    def get_urls(self) -> list[Any]:
        own = [
            path("download/", self.admin_site.admin_view(audit_file.download), name="sessions_app_auditrecord_download"),
            path("verify/", self.admin_site.admin_view(self.verify_view), name="sessions_app_auditrecord_verify"),
        ]
        return own + super().get_urls()

    def verify_view(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return audit_file.verify(request)
        except NotPossible as error:
            self.message_user(request, f"{str(error).capitalize()}.", messages.WARNING)
            return HttpResponseRedirect(self.link("changelist"))

    @admin.display(description="when (UTC)")
    def when(self, row: AuditRecord) -> str:
        return f"{row.at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="who")
    def who(self, row: AuditRecord) -> str:
        return row.actor

    @admin.display(description="what")
    def what(self, row: AuditRecord) -> str:
        return action_text(row.action)
