"""Pages of the admin's lists by keyset: each page begins behind a row, so no list is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    _ChangeList = ChangeList
else:
    _ChangeList = ChangeList

AFTER = "after"
"""The parameter with the key of the last row of the page before."""
WINDOW = 50_000
"""Rows that one page looks at, if no index finds what its filters ask for. The next page looks at the rows before them."""
_BY_NUMBER = (["-id"], ["-pk"])


class KeysetList(_ChangeList):
    """Django's list without its count and page numbers."""

    is_first = True
    older: str | None = None
    """The query string of the next page."""
    first = "?"
    looked_at = 0
    """Not 0: the page has all that was found among so many rows, and there are older ones."""

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        self.params.pop(AFTER, None)
        found: dict[str, Any] = dict(super().get_filters_params(params))
        found.pop(AFTER, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        # Django repeats columns.
        order = list(dict.fromkeys(str(name) for name in self.get_ordering(request, self.root_queryset)))
        rows: QuerySet[Any] = self.queryset
        after = request.GET.get(AFTER, "")
        behind = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else None
        if behind is not None:
            rows = _behind(rows, order, behind)
            self.is_first = False
        bottom = self._bottom(request, order, behind)
        if bottom is not None:
            rows = rows.filter(pk__gt=bottom)
        page = list(rows[: self.list_per_page + 1])
        more = len(page) > self.list_per_page
        self.result_list: Any = page[: self.list_per_page]
        of_operators: Any = self.model_admin
        of_operators.listed(self.result_list)
        self.result_count = len(self.result_list)
        self.full_result_count = None
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True
        self.paginator = self.model_admin.get_paginator(request, self.queryset.none(), self.list_per_page)
        self.first = self.get_query_string()
        if more:
            self.older = self.get_query_string({AFTER: page[self.list_per_page - 1].pk})
        elif bottom is not None and self.model._base_manager.filter(pk__lte=bottom).exists():
            self.looked_at = WINDOW
            self.older = self.get_query_string({AFTER: bottom + 1})

    def _bottom(self, request: HttpRequest, order: list[str], behind: int | None) -> int | None:
        """Rows up to this number are left to a later page; None: all are looked at."""
        of_operators: Any = self.model_admin
        if order not in _BY_NUMBER or not of_operators.scans(request):
            return None
        top = self.model._base_manager.order_by("-pk").values_list("pk", flat=True).first() if behind is None else behind - 1
        return max((top or 0) - WINDOW, 0)


def _behind(rows: QuerySet[Any], order: list[str], key: int) -> QuerySet[Any]:
    """The rows behind this one in the order; none if it is gone and its other columns count."""
    if order in _BY_NUMBER:
        return rows.filter(pk__lt=key)
    names = [name.lstrip("-") for name in order]
    values = rows.model._base_manager.filter(pk=key).values_list(*names).first()
    if values is None:
        return rows.none()
    behind, same = Q(), Q()
    for name, plain, value in zip(order, names, values, strict=True):
        comparison = "lt" if name.startswith("-") else "gt"
        behind |= same & Q(**{f"{plain}__{comparison}": value})
        same &= Q(**{plain: value})
    # Implied by the rest; with it an index on the first column is enough to begin in the middle.
    comparison = "lte" if order[0].startswith("-") else "gte"
    return rows.filter(behind, **{f"{names[0]}__{comparison}": values[0]})
