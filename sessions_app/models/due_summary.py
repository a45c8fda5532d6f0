"""Due summaries: sessions whose older part should be summarised, or is being so."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class DueSummary(models.Model):
    """One row a session, gone when its summary is stored.

    ``due``: a worker may take it of itself. ``worker`` is at it, if that one lives; ``rest_until``: the last attempt
    failed, and nobody tries before.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="+")
    asked_at = models.DateTimeField()
    due = models.BooleanField(default=True)
    worker = models.CharField(max_length=64, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0)
    rest_until = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["asked_at"], condition=models.Q(due=True), name="summary_due")]

    def __str__(self) -> str:
        return f"summary of {self.session_id}"
