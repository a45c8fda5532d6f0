"""Audit: the record of who did what to what, when, from where.

Whoever changes something an operator answers for, or reads what users wrote, writes its row in the same
transaction. Rows are never changed, and they say nothing that has to stay sealed.
"""

from __future__ import annotations

from enum import StrEnum

from sessions_app.models import AuditRecord, Tenant


class Action(StrEnum):
    TENANT_CREATED = "tenant_created"
    TENANT_CHANGED = "tenant_changed"
    TENANT_SUSPENDED = "tenant_suspended"
    TENANT_RESUMED = "tenant_resumed"
    KEY_ISSUED = "key_issued"
    KEY_REVOKED = "key_revoked"
    KEY_CHANGED = "key_changed"
    KEY_ROTATED = "key_rotated"
    INSTALLATION_KEYS_ACCEPTED = "installation_keys_accepted"
    TRANSCRIPT_READ = "transcript_read"


SERVER = "server"
"""The actor when the server itself does something and nobody asked it to."""


def record(
    *,
    actor: str,
    action: Action,
    target: str,
    tenant: Tenant | None = None,
    address: str = "",
    detail: str = "",
) -> AuditRecord:
    """Write one row. Names too long for their column are cut: an audit must not be what fails."""
    return AuditRecord.objects.create(
        tenant=tenant,
        actor=actor[:200],
        action=action.value,
        target=target[:300],
        address=address[:64],
        detail=detail,
    )
