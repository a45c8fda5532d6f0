"""The audit log: who did what, when, to what and from where."""

from __future__ import annotations

from django.db import models

from sessions_app.models.tenant import Tenant


class AuditRecord(models.Model):
    """One audit record; never changed. It outlives the rows it is about, so it refers to them by name."""

    tenant = models.ForeignKey(Tenant, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=300)
    address = models.CharField(max_length=64, blank=True, default="")
    detail = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["actor", "-at"], name="audit_of_actor")]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"
