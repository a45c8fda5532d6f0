"""Worker heartbeats, the workers' leases, and the database's clock."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import DateTimeField, Q, QuerySet, Value
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan

from sessions_app.core.base import maintenance, raw_sql
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import TURN_FORMAT, Turn, TurnState, WorkerPresence

STUCK_AFTER_SECONDS = 5
"""A turn that is queued longer than this while no worker is alive is reported in the log and in /readyz."""


def database_clock() -> datetime:
    """The database's current time."""
    row = raw_sql.row("select {now}")
    assert row is not None
    # SQLite returns times as text.
    return row[0] if isinstance(row[0], datetime) else datetime.fromisoformat(row[0]).replace(tzinfo=UTC)


def not_after(until: datetime | None) -> Q:
    """A filter that is false when the database's clock has passed ``until``; None: no limit.

    For statements that conclude from missing heartbeats that a process is gone: the statement itself may be delayed.
    """
    return Q() if until is None else Q(GreaterThan(Value(until, DateTimeField()), Now()))


def of_queues(queues: Sequence[str] | None) -> Q:
    """A filter for the turns of these queues; None: of all."""
    return Q() if queues is None else Q(queue__in=list(queues))


_RENEW = """
insert into sessions_app_workerpresence (worker, host, pid, started_at, seen_at, stopping, lease_expires_at, queues)
values (%s, %s, %s, {now}, {now}, false, {moment}, %s)
on conflict (worker) do update set seen_at = excluded.seen_at, lease_expires_at = excluded.lease_expires_at,
 queues = excluded.queues
returning worker
"""
ALL_QUEUES = "*"
"""Stored for a worker that serves every queue."""


def renewal(worker: str, queues: Sequence[str] | None = None) -> Statement:
    """The statement that writes this worker's heartbeat and renews its lease; it makes the worker's row if there is none.

    ``queues``: those that it serves; None: all.
    """
    lease = float(settings.AGENTHOST_LEASE_SECONDS)
    served = ALL_QUEUES if queues is None else ",".join(queues)
    return Statement(_RENEW, (worker, socket.gethostname()[:200], os.getpid(), lease, served))


def announce(worker: str, queues: Sequence[str] | None = None) -> None:
    """Write this worker's heartbeat and renew its lease."""
    statement = renewal(worker, queues)
    raw_sql.rows(statement.sql, statement.params)


def with_lease() -> QuerySet[WorkerPresence, str]:
    """The names of the workers whose lease has not expired."""
    return WorkerPresence.objects.filter(lease_expires_at__gte=Now()).values_list("worker", flat=True)


def leave(worker: str) -> None:
    """Delete this worker's row, and with it its lease: other workers may take over its remaining turns at once."""
    WorkerPresence.objects.filter(worker=worker).delete()


def workers_alive() -> int:
    """The number of workers with a heartbeat within one lease time."""
    return WorkerPresence.objects.filter(seen_at__gt=Now() - timedelta(seconds=settings.AGENTHOST_LEASE_SECONDS)).count()


def turns_stuck() -> int:
    """The number of turns that are queued for longer than STUCK_AFTER_SECONDS."""
    since = Now() - timedelta(seconds=STUCK_AFTER_SECONDS)
    return Turn.objects.filter(state=TurnState.QUEUED, format__lte=TURN_FORMAT, queued_at__lt=since).count()


def delete_dead(after: timedelta) -> int:
    return maintenance.delete_in_batches(WorkerPresence.objects.filter(seen_at__lt=Now() - after))
