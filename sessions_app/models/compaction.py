"""Compactions: summaries that replace the start of a history in model input."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class Compaction(models.Model):
    """``summary`` replaces the messages up to ``covers_through`` (null: they are left out). Never changed."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compactions")
    covers_through = models.PositiveIntegerField()
    summary = models.TextField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "covers_through"], name="compaction_once")]

    def __str__(self) -> str:
        return f"through {self.covers_through}"
