"""The navigation of a tenant's pages: one entry per section, shown to members whose role has its right."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from sessions_app.core.tenancy.rights import Account, Right, as_member
from sessions_app.models import Tenant


@dataclass(frozen=True, slots=True)
class Section:
    """``name``: the section's name and that of its URL."""

    name: str
    title: str
    right: Right


SECTIONS = (
    Section("tenant", "Home", Right.SEE_TENANT),
    Section("playground", "Playground", Right.READ_TRANSCRIPTS),
    Section("sessions", "Sessions", Right.SEE_SESSIONS),
    Section("use", "Use", Right.SEE_USE),
    Section("keys", "Keys", Right.SEE_KEYS),
    Section("webhooks", "Webhooks", Right.SEE_WEBHOOKS),
    Section("members", "Members", Right.SEE_MEMBERS),
    Section("audit", "Audit", Right.SEE_AUDIT),
)


@dataclass(frozen=True, slots=True)
class Link:
    title: str
    url: str
    current: bool


def links(by: Account, tenant: Tenant, current: str) -> list[Link]:
    """The links that this member sees."""
    return [
        Link(section.title, reverse(f"console:{section.name}", args=[tenant.slug]), section.name == current)
        for section in SECTIONS
        if as_member(by, section.right, tenant.pk)
    ]
