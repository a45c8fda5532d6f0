"""Which workers are alive, by the database's clock."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import DateTimeField, Q, Value
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan

from sessions_app.core.base import maintenance, raw_sql
from sessions_app.models import TURN_FORMAT, Turn, TurnState, WorkerPresence

STUCK_AFTER_SECONDS = 5
"""A turn queued this long while no worker is alive is said aloud."""


def database_clock() -> datetime:
    """The database's time, as it was when it got the question."""
    row = raw_sql.row("select {now}")
    assert row is not None
    # SQLite has no type for times.
    return row[0] if isinstance(row[0], datetime) else datetime.fromisoformat(row[0]).replace(tzinfo=UTC)


def not_after(until: datetime | None) -> Q:
    """A filter that is false once the database's clock has passed ``until``; None: no limit.

    For statements that conclude from silence that a process is gone: the statement itself may have been delayed.
    """
    return Q() if until is None else Q(GreaterThan(Value(until, DateTimeField()), Now()))


def announce(worker: str) -> None:
    """Say that this worker lives; called at its start and with each renewal of its leases."""
    defaults = {"host": socket.gethostname()[:200], "pid": os.getpid(), "seen_at": Now()}
    WorkerPresence.objects.update_or_create(worker=worker, defaults=defaults, create_defaults={**defaults, "started_at": Now()})


def leave(worker: str) -> None:
    WorkerPresence.objects.filter(worker=worker).delete()


def workers_alive() -> int:
    """Workers seen within one lease's time."""
    return WorkerPresence.objects.filter(seen_at__gt=Now() - timedelta(seconds=settings.AGENTHOST_LEASE_SECONDS)).count()


def turns_stuck() -> int:
    """Turns that wait in the queue although they should have been claimed long ago."""
    since = Now() - timedelta(seconds=STUCK_AFTER_SECONDS)
    return Turn.objects.filter(state=TurnState.QUEUED, format__lte=TURN_FORMAT, queued_at__lt=since).count()


def delete_dead(after: timedelta) -> int:
    return maintenance.delete_in_batches(WorkerPresence.objects.filter(seen_at__lt=Now() - after))
