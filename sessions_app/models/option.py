"""A session's option values, one row per value; secrets are encrypted."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant


class OptionValue(models.Model):
    """The value that a client has set for one option. Exactly one of ``value`` and ``sealed`` is set."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="option_values")
    name = models.CharField(max_length=200)
    value = models.TextField(null=True)
    sealed = models.BinaryField(null=True)
    position = models.PositiveIntegerField(help_text="Clients get their options back in the order they set them.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "name"], name="option_once"),
            models.CheckConstraint(
                condition=models.Q(value__isnull=True, sealed__isnull=False) | models.Q(value__isnull=False, sealed__isnull=True),
                name="option_plain_or_sealed",
            ),
        ]

    def __str__(self) -> str:
        return self.name
