"""The messages of a session's history, stored exactly as received."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant
from sessions_app.models.turn import Turn


class Origin(models.TextChoices):
    SEED = "seed"
    CLIENT = "client"
    SERVER = "server"
    NOTE = "note", "closing note for a client's call"


class Message(models.Model):
    """One message. ``content`` is JSON text. ``provider_data`` is sent only to the provider it came from."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False, related_name="messages")
    position = models.PositiveIntegerField()
    role = models.CharField(max_length=16)
    content = models.TextField()
    tool_call_id = models.TextField(null=True)
    origin = models.CharField(max_length=8, choices=Origin.choices)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, null=True, db_index=False, related_name="messages")
    run = models.PositiveIntegerField(default=0)
    step = models.PositiveIntegerField(default=0)
    provider_data = models.TextField(null=True)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cut_at = models.DateTimeField(null=True, help_text="Truncated away: in no history any more.")
    superseded_at = models.DateTimeField(
        null=True, help_text="Left unfinished by an attempt that failed; models get it no more since its turn was reopened."
    )
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "position"], name="message_position")]
        indexes = [
            models.Index(fields=["turn", "run"], name="message_of_run"),
            models.Index(fields=["session", "position"], condition=models.Q(role="system"), name="message_of_system"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.position}"
