"""Turns of a tenant by day, from the hours that housekeeping keeps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import Sum

from sessions_app.models import HOUR, TurnFigures


@dataclass(slots=True)
class Turns:
    ended: int = 0
    errors: int = 0


def turns_by_day(tenant: int, first: date, last: date) -> dict[date, Turns]:
    """The turns that ended on each day (UTC); days without any are left out."""
    start = datetime.combine(first, time(), UTC)
    end = datetime.combine(last, time(), UTC) + timedelta(days=1)
    hours = TurnFigures.objects.filter(width=HOUR, tenant_id=tenant, at__gte=start, at__lt=end)
    found: dict[date, Turns] = {}
    for row in hours.values("at").annotate(ended=Sum("turns"), failed=Sum("errors")).iterator(chunk_size=2000):
        of_day = found.setdefault(row["at"].astimezone(UTC).date(), Turns())
        of_day.ended += row["ended"]
        of_day.errors += row["failed"]
    return found
