"""The usage of tenants and keys: recent entries, and totals of older entries.

There are no foreign keys: their locks on parent rows would slow down a worker's flush, and usage stays when its key is
deleted. Key 0 means no key.
"""

from __future__ import annotations

from datetime import date

from django.db import models

NO_DAY = date(1970, 1, 1)
"""The day of usage that is counted over all time."""


class Measure(models.TextChoices):
    SESSIONS = "sessions"
    BYTES = "bytes"
    TOKENS = "tokens"
    OF_SESSION = "session", "bytes of one session"
    """These rows have the session's number in ``key_id``."""


class UsageEntry(models.Model):
    """One change of usage, written in the transaction of the change. Entries are inserted and added to totals, never updated."""

    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField(default=0)
    measure = models.CharField(max_length=8, choices=Measure.choices)
    day = models.DateField(help_text="The day in UTC for what is counted by the day, else the first of 1970.")
    amount = models.BigIntegerField()

    class Meta:
        # With the key, which is a session's number for a part of the entries: a claim reads those of its session only.
        indexes = [models.Index(fields=["tenant_id", "key_id"], name="usage_entries_of_key")]

    def __str__(self) -> str:
        return f"{self.measure} {self.amount:+d}"


class UsageTotal(models.Model):
    """The sum of entries that were deleted. The usage is this total plus the remaining entries."""

    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField(default=0)
    measure = models.CharField(max_length=8, choices=Measure.choices)
    day = models.DateField()
    amount = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "measure", "day", "key_id"], name="usage_total_once"),
        ]

    def __str__(self) -> str:
        return f"{self.measure} {self.amount}"
