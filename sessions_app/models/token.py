"""Short-lived tokens, stored as hashes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from sessions_app.models.key import ApiKey
from sessions_app.models.tenant import Tenant


class AccessToken(models.Model):
    """A token with a part of a key's rights, for some minutes. Only the SHA-256 of the token itself is stored.

    It ends with its key. With ``member``, the key is the one under which this member of the tenant acts. The session is referred
    to without a foreign key, because its row may be deleted before this one.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, db_index=False, related_name="tokens")
    member = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    public_id = models.CharField(max_length=64, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    session = models.BigIntegerField(null=True, help_text="The row of the only session that the token is for; null: all.")
    origin = models.CharField(max_length=300, default="", help_text="The web origin that may send the token; empty: any client.")
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_index=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["key", "expires_at"], name="tokens_of_key")]

    def __str__(self) -> str:
        return self.public_id
