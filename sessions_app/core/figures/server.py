"""Samples of the server itself: the queue, workers, webs, the database and Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Count, Min

from sessions_app.core.figures import marks
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import rates, served_agents
from sessions_app.models import HOUR, LIVE_STATES, MINUTE, ServerFigures, Turn, TurnState

Gauges = dict[str, tuple[float, int, float]]
"""For each gauge the sum of its samples, their number, and the greatest."""


def sample(now: datetime) -> dict[str, float]:
    """What the server is doing now. ``redis``: 1 if it answers, 0 if not; missing if the server uses none."""
    states = Turn.objects.filter(state__in=LIVE_STATES).values("state").annotate(number=Count("pk"), oldest=Min("queued_at"))
    live = {row["state"]: row for row in states}
    numbers = {state: float(live[state]["number"]) if state in live else 0.0 for state in LIVE_STATES}
    oldest: datetime | None = live[TurnState.QUEUED]["oldest"] if TurnState.QUEUED in live else None
    webs = served_agents.webs_alive()
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    found = {
        "queued": numbers[TurnState.QUEUED],
        "running": numbers[TurnState.RUNNING],
        "waiting": numbers[TurnState.WAITING],
        "queue_wait": 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds()),
        "workers": float(live_workers.workers_alive()),
        "webs": float(webs.number),
        "streams": float(webs.streams),
        "database_seconds": time.monotonic() - began,
    }
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from pg_stat_activity where datname = current_database()")
            found["connections"] = float(cursor.fetchone()[0])
    began = time.monotonic()
    is_up = rates.redis_answers()
    if is_up is not None:
        found["redis"] = float(is_up)
    if is_up:
        found["redis_seconds"] = time.monotonic() - began
    return found


def record(now: datetime) -> None:
    """Add a sample to the current minute and hour."""
    taken = sample(now)
    with transaction.atomic():
        for width in (MINUTE, HOUR):
            row, _ = ServerFigures.objects.get_or_create(width=width, at=marks.start_of(now, width), defaults={"gauges": "{}"})
            gauges = read(row.gauges)
            merge(gauges, {name: (value, 1, value) for name, value in taken.items()})
            row.gauges = json.dumps(gauges)
            row.save(update_fields=["gauges"])


def read(text: str) -> Gauges:
    return {name: (float(total), int(samples), float(most)) for name, (total, samples, most) in json.loads(text).items()}


def merge(into: Gauges, other: Mapping[str, tuple[float, int, float]]) -> None:
    for name, (total, samples, most) in other.items():
        if name in into:
            into[name] = (into[name][0] + total, into[name][1] + samples, max(into[name][2], most))
        else:
            into[name] = (total, samples, most)
