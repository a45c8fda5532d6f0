"""Reads figures: series over time, and the busiest tenants and agents. The admin and other reports use this module."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Sum

from sessions_app.core.figures import histograms, marks, server, turns, use
from sessions_app.core.figures.turns import Sums
from sessions_app.core.records import live_workers
from sessions_app.models import HOUR, MINUTE, ServerFigures, TurnFigures, UseFigures

Range = Literal["hour", "day", "week"]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A range's length, the buckets that are read and the width of its points."""

    seconds: int
    width: int
    point: int


_SHAPES: dict[Range, _Shape] = {
    "hour": _Shape(3600, MINUTE, 60),
    "day": _Shape(86_400, MINUTE, 900),
    "week": _Shape(7 * 86_400, HOUR, 3 * 3600),
}


@dataclass(slots=True)
class Use:
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost_nano: int = 0


@dataclass(slots=True)
class Point:
    """The figures of one stretch of time. ``gauges``: the mean and the greatest of each sample; empty without samples."""

    at: datetime
    turns: Sums = field(default_factory=Sums)
    use: Use = field(default_factory=Use)
    samples: server.Gauges = field(default_factory=dict)

    def mean(self, gauge: str) -> float | None:
        found = self.samples.get(gauge)
        return None if found is None else found[0] / found[1]

    def greatest(self, gauge: str) -> float | None:
        found = self.samples.get(gauge)
        return None if found is None else found[2]


@dataclass(frozen=True, slots=True)
class Series:
    points: list[Point]
    seconds: int
    """The time between two points."""
    total: Sums
    use: Use
    sampled: bool
    """Whether there was any sample of the server; without, housekeeping did not run."""

    def first_output(self, share: float) -> float | None:
        return histograms.percentile(self.total.first, share)

    def duration(self, share: float) -> float | None:
        return histograms.percentile(self.total.took, share)


def series(of: Range, tenants: Collection[int] | None = None) -> Series:
    """The last hour, day or week. ``tenants``: only these, and then without samples of the server."""
    shape, now = _SHAPES[of], live_workers.database_clock()
    start = marks.start_of(now, shape.point) - timedelta(seconds=shape.seconds - shape.point)
    points = [Point(start + timedelta(seconds=shape.point * number)) for number in range(shape.seconds // shape.point)]
    # The sum of all tenants is a row of its own: a range reads as many rows as it has buckets.
    chosen = [0] if tenants is None else sorted(tenants)
    total, used = Sums(), Use()

    def point_of(at: datetime) -> Point:
        return points[min(len(points) - 1, int((at - start).total_seconds()) // shape.point)]

    for row in TurnFigures.objects.filter(width=shape.width, at__gte=start, tenant_id__in=chosen).iterator(chunk_size=2000):
        one = turns.of_row(row)
        point_of(row.at).turns.merge(one)
        total.merge(one)
    for spent in UseFigures.objects.filter(width=shape.width, at__gte=start, tenant_id__in=chosen).iterator(chunk_size=2000):
        for amounts in (point_of(spent.at).use, used):
            for column in use.COLUMNS:
                setattr(amounts, column, getattr(amounts, column) + getattr(spent, column))
    sampled = False
    if tenants is None:
        for sample in ServerFigures.objects.filter(width=shape.width, at__gte=start):
            sampled = True
            server.merge(point_of(sample.at).samples, server.read(sample.gauges))
    return Series(points, shape.point, total, used, sampled)


@dataclass(frozen=True, slots=True)
class Busy:
    """A tenant or agent with its turns and errors."""

    name: int | str
    turns: int
    errors: int


def busiest(
    of: Range, by: Literal["tenant_id", "agent"], most: int, tenants: Collection[int] | None = None, *, failing: bool = False
) -> list[Busy]:
    """Those with the most turns, or with the most errors; at most ``most``."""
    shape, now = _SHAPES[of], live_workers.database_clock()
    width = MINUTE if of == "hour" else HOUR
    start = marks.start_of(now - timedelta(seconds=shape.seconds), width)
    rows = TurnFigures.objects.filter(width=width, at__gte=start).exclude(tenant_id=0)
    if tenants is not None:
        rows = rows.filter(tenant_id__in=tenants)
    if by == "agent":
        rows = rows.exclude(agent="")
    sums = rows.values(by).annotate(ended=Sum("turns"), failed=Sum("errors"))
    sums = sums.filter(failed__gt=0).order_by("-failed", by) if failing else sums.order_by("-ended", by)
    return [Busy(row[by], row["ended"], row["failed"]) for row in sums[:most]]
