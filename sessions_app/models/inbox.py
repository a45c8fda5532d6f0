"""The inbox of a session: pending messages of users, and model changes that wait for the end of a turn."""

from __future__ import annotations

from django.db import models

from sessions_app.models.key import ApiKey
from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class PendingKind(models.TextChoices):
    QUEUED = "queued"
    STEERING = "steering"


class PendingMessage(models.Model):
    """A user's message that was not sent to a model yet. ``message`` is JSON: text, attachments."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="pending_messages")
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.SET_NULL, null=True, related_name="+", help_text="Whose turn it will be."
    )
    client = models.TextField(null=True, help_text="The AHP client that sent it; null: of an earlier release.")
    kind = models.CharField(max_length=8, choices=PendingKind.choices)
    message_id = models.CharField(max_length=256)
    message = models.TextField()
    files = models.TextField(null=True, help_text="JSON of the attached files: base64 by URI; null: none.")
    position = models.IntegerField(default=0)
    trace = models.TextField(null=True, help_text="The request that sent it, in a distributed trace; null: without tracing.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "kind", "message_id"], name="pending_message_once"),
            models.UniqueConstraint(
                fields=["session"], condition=models.Q(kind="steering"), name="one_steering_message_a_session"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"


class DeferredModel(models.Model):
    """A model that a client selected during a turn. ``origin`` is JSON for the later event."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="deferred_models")
    model = models.TextField()
    config = models.TextField(null=True)
    origin = models.TextField(null=True)

    def __str__(self) -> str:
        return self.model
