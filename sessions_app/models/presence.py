"""Heartbeats of workers, by the database's clock."""

from __future__ import annotations

from django.db import models

from sessions_app.models.turn import DEFAULT_QUEUE


class WorkerPresence(models.Model):
    """A worker process. It renews its row while it is alive; the row is deleted when it stops, or long after a crash.

    ``lease_expires_at`` is the lease of all turns that the worker runs, except those with a lease of their own. It is null
    in rows of releases that renew each turn's lease. No index contains a column that a renewal changes, so each renewal is a
    heap-only update (docs/decisions/0049).
    """

    worker = models.CharField(max_length=64, primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField(null=True)
    stopping = models.BooleanField(default=False)
    queues = models.TextField(
        default=DEFAULT_QUEUE, db_default=DEFAULT_QUEUE, help_text="The queues that it serves, with commas between them; *: all."
    )

    def __str__(self) -> str:
        return self.worker
