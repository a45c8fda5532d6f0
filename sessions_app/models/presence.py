"""Presence: which processes are alive, by the database's clock."""

from __future__ import annotations

from django.db import models


class WorkerPresence(models.Model):
    """A worker process; renewed while it lives, removed when it stops or long after it died."""

    worker = models.CharField(max_length=64, primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    stopping = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.worker
