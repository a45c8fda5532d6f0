"""Searches audit records: complete actors and targets by their indexes, parts of names in the newest records only.

An index for parts of names would cost each record more than the record itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q, QuerySet

from sessions_app.models import AuditRecord

LOOKED_AT = 20_000
"""Records whose names are searched for a part."""
_MOST = 500
"""Matches of each kind."""
_KINDS_OF_TARGETS = ("session", "key", "tenant", "account", "terminal", "workspace", "group")


def matching(newer: QuerySet[AuditRecord], rows: QuerySet[AuditRecord], text: str) -> tuple[set[int], datetime | None]:
    """The numbers of ``rows`` that match, and the time up to which parts of names were searched; None: in all of them.

    ``newer``: all records, or those before a day; the newest of these are searched.
    """
    complete: Iterable[Q] = (Q(actor=text), Q(target__in=[text, *(f"{kind} {text}" for kind in _KINDS_OF_TARGETS)]))
    found: set[int] = set()
    for condition in complete:
        found |= set(rows.filter(condition).order_by("-at").values_list("pk", flat=True)[:_MOST])
    oldest = newer.order_by("-at").values_list("at", flat=True)[LOOKED_AT : LOOKED_AT + 1].first()
    part = Q(actor__icontains=text) | Q(target__icontains=text) | Q(address__icontains=text)
    some = rows if oldest is None else rows.filter(at__gt=oldest)
    found |= set(some.filter(part).order_by("-at").values_list("pk", flat=True)[:_MOST])
    return found, oldest
