"""The pages of deletions of tenants: progress while a worker deletes, and the certificate at the end."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path

from agents_app import exact_json
from sessions_app.admin.pages import ReadOnlyAdmin, badge
from sessions_app.admin.tenant_pages import KEPT
from sessions_app.core.sessions import tenant_deletion
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import TenantDeletion

_COUNTED = 10_000
"""Sessions that are left are counted up to this number: the page is loaded again every few seconds."""


@admin.register(TenantDeletion)
class DeletionAdmin(ReadOnlyAdmin[TenantDeletion]):
    heading = "Deletions of tenants"
    sees = Right.SEE_AUDIT
    tenant_path = "tenant_id"
    list_display = ("slug", "state", "requested", "requested_by", "finished")
    list_display_links = ("slug",)
    search_fields = ("slug__startswith", "public_id")
    search_help_text = "The start of a tenant's name, or the id of a deletion"
    ordering = ("-id",)

    def get_urls(self) -> list[Any]:
        own = path(
            "<path:object_id>/certificate/",
            self.admin_site.admin_view(self.certificate_view),
            name="sessions_app_tenantdeletion_certificate",
        )
        return [own, *super().get_urls()]

    @admin.display(description="state")
    def state(self, row: TenantDeletion) -> str:
        return badge("running", "being deleted") if row.finished_at is None else badge("done", "deleted")

    @admin.display(description="requested (UTC)")
    def requested(self, row: TenantDeletion) -> str:
        return f"{row.requested_at:%Y-%m-%d %H:%M}"

    @admin.display(description="finished (UTC)", empty_value="–")
    def finished(self, row: TenantDeletion) -> str | None:
        return None if row.finished_at is None else f"{row.finished_at:%Y-%m-%d %H:%M}"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        row = self.find_or_404(request, object_id)
        left = tenant_deletion.remaining(row, _COUNTED + 1) if row.finished_at is None else 0
        deleted = tenant_deletion.deleted(row)
        return self.page(
            request,
            "agenthost/deletion.html",
            {
                "title": f"Deletion of {row.slug}",
                "deletion": row,
                "left": min(left, _COUNTED),
                "more": left > _COUNTED,
                "sessions": deleted.get("session", 0),
                "total": deleted.get("session", 0) + left,
                "deleted": deleted,
                "kept": KEPT,
                "certificate": exact_json.loads(row.certificate) if row.certificate else None,
            },
        )

    def certificate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.find_or_404(request, object_id)
        if not row.certificate:
            raise Http404
        headers = {"Content-Disposition": f'attachment; filename="{row.slug}.certificate.json"', "Cache-Control": "no-store"}
        return HttpResponse(row.certificate, content_type="application/json", headers=headers)
