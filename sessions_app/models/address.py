"""Addresses: what clients of AHP call a session."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant

LONGEST_URI = 1000


class Address(models.Model):
    """A URI that a client chose; it goes when what it names is deleted, and may be used again.

    A session without a row has the URI that its agent and public id make.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    uri = models.CharField(max_length=LONGEST_URI)
    kind = models.CharField(max_length=16, default="session")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="addresses")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "uri"], name="address_once")]

    def __str__(self) -> str:
        return self.uri
