"""The journal's tables. Only sessions_app.core.log.journal uses them.

They refer to tenants and sessions without foreign keys, which would lock the parent rows in the wrong order.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class TenantCounter(models.Model):
    """A tenant's last event number, the database's era at that event, and the number of the tenant's sessions."""

    tenant_id = models.BigIntegerField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    era = models.BigIntegerField(default=0)
    sessions = models.BigIntegerField(default=0)

    class Meta:
        db_table = "tenant_counter"


class SessionTail(models.Model):
    """A session's last two event numbers and its highest fence. A tenant's own tail has the id ``-tenant_id``."""

    session_id = models.BigIntegerField(primary_key=True)
    seq = models.BigIntegerField(default=0)
    prev = models.BigIntegerField(default=0)
    fence = models.IntegerField(default=0)

    class Meta:
        db_table = "session_tail"


class Event(models.Model):
    """A stored event. ``data`` is JSON text, ready to send."""

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
    """Event numbers that were sent to clients and lost in a database crash: ``after`` < number <= ``upto``."""

    tenant_id = models.BigIntegerField(db_index=True)
    after = models.BigIntegerField()
    upto = models.BigIntegerField()

    class Meta:
        db_table = "journal_gap"


class Pruned(models.Model):
    """Events of a session up to ``through`` may be deleted: readers from an earlier position get an error."""

    session_id = models.BigIntegerField(primary_key=True)
    through = models.BigIntegerField()

    class Meta:
        db_table = "pruned"
