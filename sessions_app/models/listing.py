"""Listings of agents: the same for all processes, even if they have loaded different agents files."""

from __future__ import annotations

from django.db import models

from sessions_app.models.tenant import Tenant


class AgentListing(models.Model):
    """The public parts of the operator's agents, by digest. Clients are shown the listing that was published last."""

    digest = models.CharField(max_length=64, unique=True)
    document = models.TextField(help_text="JSON list of what is shown of each agent, in the operator's order.")
    published_at = models.DateTimeField(db_index=True)
    seen_at = models.DateTimeField(help_text="When a process that serves these agents last said so.")

    def __str__(self) -> str:
        return self.digest[:12]


class ShownListing(models.Model):
    """The listing that one tenant is shown. Changed only together with the event about the change."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+")
    listing = models.ForeignKey(AgentListing, on_delete=models.PROTECT, db_index=False, related_name="+")
    agents = models.JSONField(null=True, help_text="The agents that the tenant might use then; null: all.")

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.listing_id}"
