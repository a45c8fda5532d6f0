"""Tenants: the isolated customers of a server."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models

from sessions_app.models.limits import Limited


class Tenant(Limited):
    """One customer of the server. Every row of its data refers to it."""

    slug = models.CharField(
        max_length=63, unique=True, validators=[RegexValidator(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "a-z, 0-9 and inner hyphens")]
    )
    title = models.CharField(max_length=200, blank=True)
    allowed_agents = models.JSONField(
        null=True, blank=True, help_text="A list of agent names; empty (null): every agent of the server."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    suspended_at = models.DateTimeField(null=True, blank=True, editable=False)
    session_retention_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Sessions that nobody used for this many days are deleted, history and all. Empty: kept for ever.",
    )

    new_families_from = models.BigIntegerField(
        null=True, editable=False, help_text="The number of its event of this name; null: it was not written yet."
    )

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug
