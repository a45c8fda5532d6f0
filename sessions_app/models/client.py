"""AHP clients: their connections, the sessions they are active in, and the actions they have dispatched.

Clients choose their own ids, which are unique within a tenant.
"""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class SessionClient(models.Model):
    """An active client of a session, with its tools. ``left_at``: it has left, and its grace period has begun."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="clients")
    client = models.CharField(max_length=256)
    name = models.TextField(null=True)
    tools = models.TextField(default="[]", help_text="JSON list.")
    customizations = models.TextField(null=True, help_text="JSON list; null: it brought none.")
    joined_at = models.DateTimeField()
    left_at = models.DateTimeField(null=True)
    stays = models.BooleanField(
        default=False, db_default=False, help_text="Of AHP 0.9 or 1.0: it stays active during its grace period, and leaves then."
    )
    away_since = models.DateTimeField(null=True, help_text="When its last connection ended, if it stays; null: it is there.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "client"], name="client_once_a_session")]
        indexes = [
            models.Index(fields=["tenant", "client"], name="sessions_of_client"),
            models.Index(fields=["left_at"], condition=models.Q(left_at__isnull=False), name="client_grace"),
        ]

    def __str__(self) -> str:
        return self.client


class ClientPresence(models.Model):
    """An open connection of a client; its process renews it periodically."""

    connection = models.CharField(max_length=64, primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    client = models.CharField(max_length=256)
    life = models.CharField(max_length=64, help_text="From one handshake to the next that begins anew.")
    seen_at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "client"], name="connections_of_client")]

    def __str__(self) -> str:
        return f"{self.client} {self.connection}"


class ClientHandshake(models.Model):
    """What a client said in its last handshake, because AHP's ``reconnect`` does not repeat it."""

    tenant_id = models.BigIntegerField()
    client = models.CharField(max_length=256)
    version = models.CharField(max_length=32, help_text="The name of the version that was chosen.")
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "client"], name="handshake_once")]

    def __str__(self) -> str:
        return f"{self.client} {self.version}"


class DispatchRecord(models.Model):
    """A dispatched action, kept for a day to detect repetitions. Written in the transaction that it causes."""

    tenant_id = models.BigIntegerField()
    client = models.CharField(max_length=256)
    life = models.CharField(max_length=64)
    seq = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    connection = models.CharField(max_length=64)
    refused = models.BooleanField(default=False)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "client", "life", "seq", "digest"], name="dispatch_once"),
        ]

    def __str__(self) -> str:
        return f"{self.client} {self.seq}"
