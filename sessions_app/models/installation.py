"""Marks in the database that processes compare with their settings."""

from __future__ import annotations

from django.db import models


class InstallationMark(models.Model):
    """A named value, such as a text that was encrypted with the key ring (core.records.database_checks)."""

    name = models.CharField(max_length=64, primary_key=True)
    value = models.TextField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
