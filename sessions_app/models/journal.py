"""The journal's tables. Touched by sessions_app.core.log.journal alone.

They refer to tenants and sessions by bare numbers: a foreign key's lock on the parent row would
take the journal's locks in the wrong order.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class TenantCounter(models.Model):
    """A tenant's last number, the era it was given in, and how many sessions there are."""

    tenant_id = models.BigIntegerField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    era = models.BigIntegerField(default=0)
    sessions = models.BigIntegerField(default=0)

    class Meta:
        db_table = "tenant_counter"


class SessionTail(models.Model):
    """A session's last number, the one before, and the highest fence. A tenant's own tail is ``-tenant_id``."""

    session_id = models.BigIntegerField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    prev = models.BigIntegerField(default=0)
    fence = models.IntegerField(default=0)

    class Meta:
        db_table = "session_tail"


class Event(models.Model):
    """Something that happened, numbered. ``data`` is JSON text, ready to send."""

    pk = models.CompositePrimaryKey("tenant_id", "seq")
    tenant_id = models.BigIntegerField()
    seq = models.BigIntegerField()
    session_id = models.BigIntegerField()
    kind = models.CharField(max_length=40)
    data = models.TextField()
    fence = models.IntegerField(null=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "event"
        indexes = [
            models.Index(fields=["session_id", "seq"], name="event_of_session"),
            models.Index(
                fields=["session_id", "seq"],
                condition=models.Q(kind__in=["turn_started", "turn_resumed"]),
                name="event_run_start",
            ),
        ]


class JournalGap(models.Model):
    """Numbers that were shown and lost in a crash of the database: ``after`` < number <= ``upto``."""

    tenant_id = models.BigIntegerField(db_index=True)
    after = models.BigIntegerField()
    upto = models.BigIntegerField()

    class Meta:
        db_table = "journal_gap"


class Pruned(models.Model):
    """Events of a session up to ``through`` may be missing: a reader from below has to be told."""

    session_id = models.BigIntegerField(primary_key=True)
    through = models.BigIntegerField()

    class Meta:
        db_table = "pruned"
