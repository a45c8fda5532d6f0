"""Files that a session's agent changed."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class FileVersion(models.Model):
    """The content of a file before or after an agent's edit, once for each session and content."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False, related_name="file_versions")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the content, in hexadecimal.")
    content = models.BinaryField()
    size = models.IntegerField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "digest"], name="file_version_once_a_session")]

    def __str__(self) -> str:
        return self.digest


class SessionDiffs(models.Model):
    """The files that a session's agent changed. A table of its own: runs write it, and clients lock the session's row."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.CASCADE, related_name="diffs")
    diffs = models.TextField(help_text="JSON list; file_edits.py has its form.")

    def __str__(self) -> str:
        return f"changed files of session {self.session_id}"
