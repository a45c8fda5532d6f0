"""Base classes of the admin's pages: no deleting, capped counts, an audit actor for every action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.admin.paging import CappedPaginator
from sessions_app.core.tenancy import audit, sign_ins

M = TypeVar("M", bound=models.Model)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin
else:

    class _ModelAdmin(admin.ModelAdmin):
        """Django's class is generic only for the type checker."""

        def __class_getitem__(cls, _item: Any) -> type:
            return cls


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


def actor(request: HttpRequest) -> str:
    """The operator's actor name in audit records."""
    return audit.operator(request.user.get_username()) if request.user.is_authenticated else sign_ins.ANYBODY


def address(request: HttpRequest) -> str:
    """The operator's client address. The server has already evaluated the headers of trusted proxies."""
    return str(request.META.get("REMOTE_ADDR") or "")


def own_page(request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """Render one of our own pages with a policy against loading anything external and running displayed content."""
    response = TemplateResponse(request, template, context, status=status).render()
    response["Content-Security-Policy"] = _POLICY
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "same-origin"
    return response


def badge(state: str, text: str = "") -> str:
    return format_html('<span class="ah-badge ah-{}">{}</span>', state, text or state)


class OperatorAdmin(_ModelAdmin[M]):
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    actions_on_top = True
    sortable_by = ()
    heading = ""
    """The heading above the list."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": self.heading, **(extra_context or {})})

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:  # noqa: ARG002
        return False

    def may(self, request: HttpRequest, what: str) -> bool:
        """Whether the operator has Django's permission ``what`` (add, change, view) for this model.

        Pages with actions instead of a form return False from ``has_change_permission``, so they need this check.
        """
        return request.user.has_perm(f"{self.opts.app_label}.{what}_{self.opts.model_name}")

    def find_or_404(self, request: HttpRequest, object_id: str) -> M:
        """The row with this id, if the operator may see it; 404 otherwise."""
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            raise Http404
        return row

    def require(self, request: HttpRequest, what: str) -> None:
        if not self.may(request, what):
            raise PermissionDenied

    def link(self, page: str, *args: object) -> str:
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{page}", args=args)

    def page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        """Render one of our own pages about this model."""
        return own_page(request, template, {**self.admin_site.each_context(request), "opts": self.opts, **context})

    def confirm(self, request: HttpRequest, **context: Any) -> HttpResponse:
        """A confirmation page. Takes title, text, rows, button, danger, hidden, form, back."""
        return self.page(request, "agenthost/confirm.html", context)


class ReadOnlyAdmin(OperatorAdmin[M]):
    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:  # noqa: ARG002
        return False
