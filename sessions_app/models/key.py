"""API keys, stored as hashes."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from sessions_app.models.limits import Limited
from sessions_app.models.tenant import Tenant


class ApiKey(Limited):
    """A key of one tenant. The key itself (32 random bytes) is not stored, only its SHA-256."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, db_index=True, editable=False, help_text="The start of the key, to recognise it by.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(default=list)
    allowed_agents = models.JSONField(
        null=True, blank=True, help_text="A list of agent names; empty (null): every agent the tenant may use."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    rotated_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="rotated_to"
    )
    member = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text="The member of the tenant who acts under this key with short-lived tokens; null: an ordinary key.",
    )
    line = models.BigIntegerField(
        null=True, editable=False, help_text="The first key of those that were rotated one into the next; null: this one."
    )

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name = "API key"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "member"], condition=models.Q(member__isnull=False), name="one_key_per_member"
            ),
        ]
        indexes = [
            models.Index(fields=["line"], condition=models.Q(line__isnull=False), name="keys_of_line"),
            models.Index(fields=["revoked_at"], condition=models.Q(revoked_at__isnull=False), name="keys_revoked"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"
