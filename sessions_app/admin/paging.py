"""A paginator that never counts further than anybody would page."""

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
"""How many rows can be paged through; beyond them a list has to be narrowed down."""


class CappedPaginator(_Paginator):
    """Counts to ``REACH`` and stops: a million rows cost what a thousand do."""

    object_list: QuerySet[Any]

    @cached_property
    def _found(self) -> int:
        # Only keys, so that what the list's columns compute is not computed to be counted.
        return self.object_list.order_by().values("pk")[: REACH + 1].count()

    @cached_property
    def count(self) -> int:
        return min(self._found, REACH)

    @property
    def capped(self) -> bool:
        return self._found > REACH
