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


class KeysetList(_ChangeList):
    """Django's list without its count and page numbers."""

    is_first = True
    older: str | None = None
    """The query string of the next page."""
    first = "?"

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        self.params.pop(AFTER, None)
        found: dict[str, Any] = dict(super().get_filters_params(params))
        found.pop(AFTER, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        order = [str(name) for name in self.get_ordering(request, self.root_queryset)]
        rows: QuerySet[Any] = self.queryset
        after = request.GET.get(AFTER, "")
        if after.isascii() and after.isdigit() and len(after) < 19:
            rows = _behind(rows, order, int(after))
            self.is_first = False
        page = list(rows[: self.list_per_page + 1])
        more = len(page) > self.list_per_page
        self.result_list: Any = page[: self.list_per_page]
        self.result_count = len(self.result_list)
        self.full_result_count = None
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True
        self.paginator = self.model_admin.get_paginator(request, self.queryset.none(), self.list_per_page)
        self.first = self.get_query_string()
        if more:
            self.older = self.get_query_string({AFTER: page[self.list_per_page - 1].pk})


def _behind(rows: QuerySet[Any], order: list[str], key: int) -> QuerySet[Any]:
    """The rows behind this one in the order; none if it is gone."""
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
