"""Idempotency: what a client's key stood for the first time."""

from __future__ import annotations

from django.db import models

from sessions_app.models.key import ApiKey


class IdempotencyRecord(models.Model):
    """The outcome of a request that was accepted, kept for a day. Written in the transaction it protects.

    ``digest`` tells whether the same key came with the same body; it is keyed, because bodies hold secrets.
    What was accepted is named in words: the session alone, or a run of one of its turns.
    """

    api_key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=300)
    client_key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)
    session = models.CharField(max_length=64)
    turn = models.CharField(max_length=64, blank=True, default="")
    run = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["api_key", "route", "client_key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return f"{self.route} {self.client_key}"
