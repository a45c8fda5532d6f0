"""The deletion of a tenant: its progress, and at the end its certificate."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class TenantDeletion(models.Model):
    """One row per deleted tenant; kept for ever. The tenant's own row stays as well, without its name: the audit refers to it.

    ``session``: the row of the session that is counted and hashed, and is being deleted. After a crash the work continues there.
    """

    tenant_id = models.BigIntegerField(unique=True)
    public_id = models.CharField(max_length=64, unique=True)
    slug = models.CharField(max_length=63, help_text="The tenant's name before the deletion.")
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    session = models.BigIntegerField(null=True)
    counts = models.TextField(default="{}", help_text="JSON: what was deleted so far, by kind.")
    digest = models.CharField(max_length=64, default="", help_text="SHA-256 chained over the deleted sessions.")
    certificate = models.TextField(default="", help_text="JSON, signed; empty until the deletion is finished.")

    class Meta:
        ordering = ["-requested_at"]
        indexes = [
            models.Index(fields=["id"], condition=models.Q(finished_at=None), name="deletions_unfinished"),
        ]

    def __str__(self) -> str:
        return f"deletion of {self.slug}"
