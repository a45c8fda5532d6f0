"""The queue of sessions whose older part should be or is being summarised."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant
from sessions_app.models.turn import DEFAULT_QUEUE


class DueSummary(models.Model):
    """At most one row per session, deleted when its summary is stored.

    ``due``: any worker may claim it. ``worker``: the worker that has claimed it, if it is alive. ``rest_until``: the last attempt
    failed, and no worker tries again before.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="+")
    asked_at = models.DateTimeField()
    due = models.BooleanField(default=True)
    worker = models.CharField(max_length=64, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0)
    rest_until = models.DateTimeField(null=True)

    queue = models.CharField(
        max_length=40, default=DEFAULT_QUEUE, db_default=DEFAULT_QUEUE, help_text="Only workers that serve it claim the summary."
    )

    class Meta:
        indexes = [models.Index(fields=["asked_at"], condition=models.Q(due=True), name="summary_due")]

    def __str__(self) -> str:
        return f"summary of {self.session_id}"
