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
    """A stored event. ``data`` is JSON text, ready to send.

    On Postgres the table has partitions by ``partition``, see journal.partitions. The primary key holds within each of them, and
    event numbers are never given twice.
    """

    pk = models.CompositePrimaryKey("tenant_id", "seq")
    tenant_id = models.BigIntegerField()
    seq = models.BigIntegerField()
    session_id = models.BigIntegerField()
    kind = models.CharField(max_length=40)
    data = models.TextField()
    fence = models.IntegerField(null=True)
    at = models.DateTimeField(db_default=Now())
    partition = models.SmallIntegerField(
        default=0, db_default=0, help_text="0: kept, and deleted by row. Others: stream events of one period, deleted together."
    )

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


class EventPartition(models.Model):
    """A partition for stream events that is in use. Without a row it is empty."""

    number = models.SmallIntegerField(primary_key=True)
    is_open = models.BooleanField(default=True, db_default=True, help_text="New stream events go into it.")
    closed_at = models.DateTimeField(null=True)
    marked_session = models.BigIntegerField(null=True, help_text="Readers of the sessions up to this one are refused already.")
    marked_at = models.DateTimeField(
        null=True, help_text="What must stay has been taken out, and readers from before the rest are refused."
    )
    opened_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "event_partition"
        constraints = [
            models.UniqueConstraint(fields=["is_open"], condition=models.Q(is_open=True), name="one_open_partition"),
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
