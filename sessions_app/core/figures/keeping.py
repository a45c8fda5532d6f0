"""One round of all figures, which housekeeping starts once a minute."""

from __future__ import annotations

from datetime import datetime, timedelta

from sessions_app.core.base import maintenance
from sessions_app.core.base.maintenance import Round
from sessions_app.core.figures import server, turns, use
from sessions_app.core.records import live_workers
from sessions_app.models import HOUR, MINUTE, ServerFigures, TurnFigures, UseFigures

MINUTES_KEPT = timedelta(hours=48)
HOURS_KEPT = timedelta(days=180)


def keep(seconds: float) -> None:
    """Sample the server, count model use and ended turns, and delete old figures, for at most about ``seconds``."""
    this, now = Round(seconds), live_workers.database_clock()
    server.record(now)
    use.count(now)
    turns.count(this, now)
    _forget(now)


def _forget(now: datetime) -> None:
    for rows in (TurnFigures.objects, UseFigures.objects, ServerFigures.objects):
        maintenance.delete_in_batches(rows.filter(width=MINUTE, at__lt=now - MINUTES_KEPT))
        maintenance.delete_in_batches(rows.filter(width=HOUR, at__lt=now - HOURS_KEPT))
