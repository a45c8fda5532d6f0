"""Installation marks: what this database was set up with."""

from __future__ import annotations

from django.db import models


class InstallationMark(models.Model):
    """One named fact about the installation, such as a canary sealed under its key ring (core.records.database_checks)."""

    name = models.CharField(max_length=64, primary_key=True)
    value = models.TextField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
