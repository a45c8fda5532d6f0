"""Usage: what tenants and keys have used, as entries and as the sums of older entries.

Tenants and keys are bare numbers: a foreign key's lock on the parent row would be one more lock that a
worker's flush takes, and what was used is a fact even when its key is gone. Key 0 is nobody's.
"""

from __future__ import annotations

from datetime import date

from django.db import models

STANDING = date(1970, 1, 1)
"""The day of what is counted over all time."""


class Measure(models.TextChoices):
    SESSIONS = "sessions"
    BYTES = "bytes"
    TOKENS = "tokens"
    OF_SESSION = "session", "bytes of one session"
    """In place of a key these rows have the session's number."""


class UsageEntry(models.Model):
    """One change, written in the transaction that makes it. Entries are inserted and folded away, never updated."""

    tenant_id = models.BigIntegerField(db_index=True)
    key_id = models.BigIntegerField(default=0)
    measure = models.CharField(max_length=8, choices=Measure.choices)
    day = models.DateField(help_text="The day in UTC for what is counted by the day, else the first of 1970.")
    amount = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.measure} {self.amount:+d}"


class UsageTotal(models.Model):
    """The sum of the entries that were folded. What was used is this and the entries still there."""

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
