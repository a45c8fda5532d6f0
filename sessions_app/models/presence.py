"""Heartbeats of workers, by the database's clock."""

from __future__ import annotations

from django.db import models


class WorkerPresence(models.Model):
    """A worker process. It renews its row while it is alive; the row is deleted when it stops, or long after a crash."""

    worker = models.CharField(max_length=64, primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    stopping = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.worker
