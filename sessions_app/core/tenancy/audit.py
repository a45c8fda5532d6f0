"""The audit log: who did what, when, to what and from where.

A change by an operator, and reading a user's conversation, write their row in the same transaction. Rows are never changed
and contain no secrets. Each has a keyed hash of its columns; ``audit_chain`` links them.
"""

from __future__ import annotations

import getpass
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC
from enum import StrEnum

from django.utils import timezone

from sessions_app.core.tenancy import audit_keys
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
    KEY_USED_FROM_NEW_ADDRESS = "key_used_from_new_address"
    INSTALLATION_KEYS_ACCEPTED = "installation_keys_accepted"
    DATABASE_BACKED_UP = "database_backed_up"
    DATABASE_RESTORED = "database_restored"
    AUDIT_EXPORTED = "audit_exported"
    AUDIT_VERIFIED = "audit_verified"
    AUDIT_PRUNED = "audit_pruned"
    SESSION_DELETED = "session_deleted"
    SESSION_TRUNCATED = "session_truncated"
    TRANSCRIPT_READ = "transcript_read"
    SESSIONS_LISTED = "sessions_listed"
    TOKENS_MINTED = "tokens_minted"
    KEY_REFUSED = "key_refused"
    WORKSPACE_READ = "workspace_read"
    WORKSPACE_REMOVED = "workspace_removed"
    TERMINAL_READ = "terminal_read"
    TERMINAL_ENDED = "terminal_ended"
    SESSION_FORKED = "session_forked"
    SESSION_EXPORTED = "session_exported"
    TENANT_EXPORTED = "tenant_exported"
    TENANT_DELETION_BEGUN = "tenant_deletion_begun"
    TENANT_DELETED = "tenant_deleted"
    WEBHOOK_CREATED = "webhook_created"
    WEBHOOK_CHANGED = "webhook_changed"
    WEBHOOK_DELETED = "webhook_deleted"
    TURN_STOPPED = "turn_stopped"
    WORKSPACE_EXPORTED = "workspace_exported"
    WORKSPACE_IMPORTED = "workspace_imported"
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGN_IN_LOCKED = "sign_in_locked"
    SIGN_IN_UNLOCKED = "sign_in_unlocked"
    SESSIONS_ENDED = "sessions_ended"
    SECOND_FACTOR_ADDED = "second_factor_added"
    SECOND_FACTOR_REMOVED = "second_factor_removed"
    RECOVERY_CODES_MADE = "recovery_codes_made"
    COMPANY_SIGN_IN_ADDED = "company_sign_in_added"
    COMPANY_SIGN_IN_REMOVED = "company_sign_in_removed"
    ACCOUNT_CREATED = "account_created"
    ACCOUNT_CHANGED = "account_changed"
    ACCOUNT_DELETED = "account_deleted"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    STAFF_ADDED = "staff_added"
    STAFF_CHANGED = "staff_changed"
    STAFF_REMOVED = "staff_removed"
    MEMBER_INVITED = "member_invited"
    INVITATION_WITHDRAWN = "invitation_withdrawn"
    INVITATION_ACCEPTED = "invitation_accepted"
    MEMBER_ADDED = "member_added"
    MEMBER_CHANGED = "member_changed"
    MEMBER_REMOVED = "member_removed"
    GROUP_CREATED = "group_created"
    GROUP_CHANGED = "group_changed"
    GROUP_DELETED = "group_deleted"


SERVER = "server"
"""The actor of an action by the server itself."""


ActorAndAddress = tuple[str, str]
"""An actor and its address, as stored in rows."""

_acting: ContextVar[Callable[[], ActorAndAddress] | None] = ContextVar("agenthost_acting", default=None)


@contextmanager
def acting(who: Callable[[], ActorAndAddress]) -> Iterator[None]:
    """Set the actor of records within the block; ``who`` is called only if something is recorded."""
    token = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(token)


def acting_now() -> ActorAndAddress:
    """The current actor and address: an operator in the admin, or the user of the shell."""
    who = _acting.get()
    return (shell_user(), socket.gethostname()) if who is None else who()


def shell_user() -> str:
    try:
        return f"shell:{getpass.getuser()}"
    except (KeyError, OSError):
        # A container may run as a user id without a name.
        return "shell"


def operator(name: str) -> str:
    """The actor name of an account that may use the admin."""
    return f"admin:{name}"


def member(name: str) -> str:
    """The actor name of any other account."""
    return f"member:{name}"


def actor_of(name: str, *, is_staff: bool) -> str:
    return operator(name) if is_staff else member(name)


def record(
    *,
    actor: str,
    action: Action,
    target: str,
    tenant: Tenant | None = None,
    tenant_id: int | None = None,
    address: str = "",
    detail: str = "",
) -> AuditRecord:
    """Write one row. Names too long for their column are cut: the audit must not make an action fail."""
    row = _signed(uuid.uuid4(), tenant_id if tenant is None else tenant.pk, actor, action, target, address, detail)
    row.save(force_insert=True)
    return row


def record_once(uid: uuid.UUID, *, actor: str, action: Action, target: str, tenant_id: int, address: str, detail: str) -> None:
    """Write one row, unless there is one with this unique id already."""
    row = _signed(uid, tenant_id, actor, action, target, address, detail)
    AuditRecord.objects.bulk_create([row], ignore_conflicts=True)


def _signed(
    uid: uuid.UUID, tenant: int | None, actor: str, action: Action, target: str, address: str, detail: str
) -> AuditRecord:
    row = AuditRecord(
        tenant_id=tenant,
        at=timezone.now(),
        actor=actor[:200],
        action=action.value,
        target=target[:300],
        address=address[:64],
        detail=detail,
        uid=uid,
    )
    row.mac = audit_keys.mac("record", values_of(row))
    return row


def newest(tenant: Tenant, most: int, *, before: int | None = None) -> list[AuditRecord]:
    """The tenant's newest records. ``before``: only those that are older than this one."""
    rows = AuditRecord.objects.filter(tenant_id=tenant.pk)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-id")[:most])


def values_of(row: AuditRecord) -> list[str | int | None]:
    """The columns that the hash of a row covers."""
    at = row.at.astimezone(UTC).isoformat(timespec="microseconds")
    uid = None if row.uid is None else str(row.uid)
    return [row.tenant_id, at, row.actor, row.action, row.target, row.address, row.detail, uid]
