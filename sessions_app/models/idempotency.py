"""Idempotency records: the results of requests with an idempotency key."""

from __future__ import annotations

from django.db import models

from sessions_app.models.key import ApiKey


class IdempotencyRecord(models.Model):
    """The result of an accepted request, kept for a day. Written in the transaction that accepts the request.

    ``digest`` shows whether a key was reused with another body; it is keyed, because bodies contain secrets. The result is the
    public id of a session, and for a turn also its id and run.
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
