"""Base classes of the admin's pages: no deleting, no counts, an audit actor for every action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.accounts.people import account, own_page
from sessions_app.admin.paging import KeysetList
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import Right

M = TypeVar("M", bound=models.Model)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin
else:

    class _ModelAdmin(admin.ModelAdmin):
        """Django's class is generic only for the type checker."""

        def __class_getitem__(cls, _item: Any) -> type:
            return cls


def badge(state: str, text: str = "") -> str:
    return format_html('<span class="ah-badge ah-{}">{}</span>', state, text or state)


class OperatorAdmin(_ModelAdmin[M]):
    """Pages of rows that belong to a tenant. Rights come from ``core.tenancy.rights``; Django's permissions count for nothing.

    ``get_queryset`` has only the rows of tenants that the account sees, so every list, count, search, action and page that
    begins with it is limited as well.
    """

    sees: Right
    """The right to see these pages."""
    adds: Right | None = None
    changes: Right | None = None
    deletes: Right | None = None
    """For pages that delete by actions of their own; Django's own deleting is always off."""
    tenant_path = "tenant"
    """From a row to its tenant's number, for queries."""
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    actions_on_top = True
    sortable_by = ()
    heading = ""
    """The heading above the list."""
    scanned: frozenset[str] = frozenset()
    """Filters that no index answers: a page of the list looks at a limited number of rows (paging.WINDOW)."""
    narrowed: frozenset[str] = frozenset({"tenant", "q"})
    """Filters with an index, which find so few rows that the others may look at all of them."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:  # noqa: ARG002
        return KeysetList

    def scans(self, request: HttpRequest) -> bool:
        """Whether the list's filters would read a whole table."""
        given = {name for name in request.GET if request.GET.get(name, "").strip()}
        return bool(given & self.scanned) and not given & self.narrowed

    def listed(self, rows: Sequence[M]) -> None:
        """Called with the rows of a page before they are shown, to read what they need together."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": self.heading, **(extra_context or {})})

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:  # noqa: ARG002
        return False

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[M]:
        return rights.of_staff(account(request), self.sees, super().get_queryset(request), self.tenant_path)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "view")

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return self.may(request, "view") and self._is_in_reach(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return self.may(request, "change") and self._is_in_reach(request, obj)

    def may(self, request: HttpRequest, what: str) -> bool:
        """Whether the account has this page's right to add, change or view, for the rows in its reach.

        Pages with actions instead of a form return False from ``has_change_permission``, so they need this check.
        """
        right = {"view": self.sees, "add": self.adds, "change": self.changes, "delete": self.deletes}[what]
        return right is not None and rights.as_staff(account(request), right)

    def _is_in_reach(self, request: HttpRequest, row: M | None) -> bool:
        tenants = account(request).staff_tenants
        if row is None or tenants is None:
            return True
        return getattr(row, "tenant_id" if self.tenant_path == "tenant" else self.tenant_path, None) in tenants

    def find_or_404(self, request: HttpRequest, object_id: str) -> M:
        """The row with this id, if the operator may see it; 404 otherwise."""
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            raise Http404
        return row

    def require_content(self, request: HttpRequest, row: models.Model) -> None:
        """Content of users and models is shown only with the right to read transcripts."""
        if not rights.as_staff(account(request), Right.READ_TRANSCRIPTS, getattr(row, "tenant_id", None)):
            raise PermissionDenied

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
