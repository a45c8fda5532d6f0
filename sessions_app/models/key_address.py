"""The networks from which keys were used."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from sessions_app.models.key import ApiKey
from sessions_app.models.tenant import Tenant


class KeyAddress(models.Model):
    """A network from which a key was used; an audit record was written with it. Forgotten after some months."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, db_index=False, related_name="addresses")
    network = models.CharField(max_length=64, help_text="An IPv4 address, or the /64 network of an IPv6 address.")
    seen_at = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key", "network"], name="one_row_per_address_of_a_key")]

    def __str__(self) -> str:
        return f"{self.key_id} {self.network}"
