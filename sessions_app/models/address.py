"""Addresses: the URIs that AHP clients chose for sessions."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant

LONGEST_URI = 1000


class Address(models.Model):
    """A URI that a client chose. The row is deleted with its session, and the URI may be used again.

    The URI of a session without a row is made of its agent's name and its public id. ``kind``: "session", or "chat" for a further
    URI of its chat. ``family``: of the version of AHP in which the client chose it, "0.1" or "1".
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    uri = models.CharField(max_length=LONGEST_URI)
    kind = models.CharField(max_length=16, default="session")
    family = models.CharField(max_length=8, default="0.1", db_default="0.1")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="addresses")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "uri"], name="address_once")]

    def __str__(self) -> str:
        return self.uri
