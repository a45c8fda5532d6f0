"""A paginator with a capped count, so that large tables stay fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

REACH = 1000
"""The number of rows that can be paged through; filters reach the others."""


class CappedPaginator(_Paginator):
    """Counts at most ``REACH`` rows: a million rows cost no more than a thousand."""

    object_list: QuerySet[Any]

    @cached_property
    def _found(self) -> int:
        # Only keys, so that the list's computed columns are not evaluated for the count.
        return self.object_list.order_by().values("pk")[: REACH + 1].count()

    @cached_property
    def count(self) -> int:
        return min(self._found, REACH)

    @property
    def capped(self) -> bool:
        return self._found > REACH
