"""Webhooks: addresses of a tenant's applications, and what is sent to them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from sessions_app.models.tenant import Tenant


class Webhook(models.Model):
    """An address to which a tenant's events are sent.

    ``position``: the number of the tenant's last event that was considered. ``failing_since``: of the first failed attempt after
    the last one that succeeded.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    public_id = models.CharField(max_length=64, unique=True)
    url = models.CharField(max_length=2000)
    description = models.CharField(max_length=200, default="", db_default="")
    types = models.JSONField(default=list, help_text="The types of events that it gets.")
    position = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200, default="", db_default="")
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=300, default="", db_default="")
    failing_since = models.DateTimeField(null=True)

    class Meta:
        ordering = ["tenant", "-id"]

    def __str__(self) -> str:
        return self.public_id


class WebhookSecret(models.Model):
    """A secret that signs what is sent to a webhook. While one is being replaced, both sign."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="secrets")
    sealed = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"secret {self.pk}"


class DeliveryState(models.TextChoices):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WebhookDelivery(models.Model):
    """One event for one webhook. ``event``: its id, the same for all attempts and all webhooks.

    ``claimed_until``: a worker is sending it; after that time another one does. ``body`` is sent as it is.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, db_index=False, related_name="deliveries")
    public_id = models.CharField(max_length=64, unique=True)
    event = models.CharField(max_length=64)
    type = models.CharField(max_length=40)
    body = models.TextField()
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(help_text="After this time it is not tried again.")
    claimed_until = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    status = models.PositiveIntegerField(null=True, help_text="Of the last answer; null: there was none.")
    answer = models.TextField(default="", db_default="", help_text="The start of the last answer's body, or why there was none.")
    took_ms = models.PositiveIntegerField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["webhook", "event"], name="event_once_a_webhook")]
        indexes = [
            models.Index(fields=["next_at"], condition=models.Q(state="pending"), name="deliveries_pending"),
            models.Index(fields=["webhook", "-id"], name="deliveries_of_webhook"),
            models.Index(fields=["last_at"], condition=~models.Q(state="pending"), name="deliveries_ended"),
        ]

    def __str__(self) -> str:
        return self.public_id
