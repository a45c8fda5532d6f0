"""Aggregates over time: turns, model use and the server itself, by minute and hour.

Housekeeping writes them (``keep``) from rows that exist already; nothing that a request or a run does waits for them.
"""

from sessions_app.core.figures.attention import Attention, attention
from sessions_app.core.figures.by_day import Turns, turns_by_day
from sessions_app.core.figures.keeping import HOURS_KEPT, MINUTES_KEPT, keep
from sessions_app.core.figures.of_tenant import OverviewOfTenant, UseOfTenant, overview_for, use_for
from sessions_app.core.figures.reading import Busy, Point, Range, Series, busiest, series

__all__ = [
    "HOURS_KEPT",
    "MINUTES_KEPT",
    "Attention",
    "Busy",
    "OverviewOfTenant",
    "Point",
    "Range",
    "Series",
    "Turns",
    "UseOfTenant",
    "attention",
    "busiest",
    "keep",
    "overview_for",
    "series",
    "turns_by_day",
    "use_for",
]
