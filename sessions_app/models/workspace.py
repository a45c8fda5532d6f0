"""Workspaces: directory trees of a tenant, which its sessions, terminals and clients use."""

from __future__ import annotations

from django.db import models

from sessions_app.models.tenant import Tenant

LONGEST_ROOT = 1024


class Workspace(models.Model):
    """One directory tree. The row exists before the directory and is deleted after it.

    ``bytes`` and ``files`` include the reservations of ``operations`` that have not ended. ``revision`` changes with every
    update of these, and when a session is bound to the workspace: a recount or removal that is based on an old one is refused.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    public_id = models.CharField(max_length=64, unique=True)
    root = models.CharField(max_length=LONGEST_ROOT, help_text="Its URI as clients see it, file:///a/b.")
    private = models.BooleanField(help_text="Of one session; removed when no live session is bound to it any more.")
    template_agent = models.CharField(
        max_length=200, null=True, help_text="The agent whose template fills the tree at its first use; null: it begins empty."
    )
    bytes = models.BigIntegerField(default=0)
    files = models.BigIntegerField(default=0)
    operations = models.IntegerField(default=0)
    revision = models.BigIntegerField(default=0)
    changed_at = models.DateTimeField(help_text="When an operation last began or ended.")
    counted_at = models.DateTimeField(null=True, help_text="When the tree was last counted; null: never.")
    used_at = models.DateTimeField(help_text="When it was last used, to within an hour.")
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True, help_text="Since when its directory is being deleted.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "root"], condition=models.Q(removed_at=None), name="workspace_root"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="workspace_of_tenant"),
            models.Index(fields=["used_at"], condition=models.Q(removed_at=None), name="workspace_used"),
            models.Index(fields=["removed_at"], condition=models.Q(removed_at__isnull=False), name="workspace_removed"),
        ]

    def __str__(self) -> str:
        return self.public_id


class WorkspaceTotal(models.Model):
    """What all workspaces of a tenant use together, with the reservations of running operations."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="+")
    bytes = models.BigIntegerField(default=0)
    workspaces = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.bytes} bytes"
