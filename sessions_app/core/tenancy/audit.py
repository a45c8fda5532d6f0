"""Audit: the record of who did what to what, when, from where.

Whoever changes something an operator answers for, or reads what users wrote, writes its row in the same
transaction. Rows are never changed, and they say nothing that has to stay sealed.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGN_IN_LOCKED = "sign_in_locked"
    SIGN_IN_UNLOCKED = "sign_in_unlocked"
    ACCOUNT_CREATED = "account_created"
    ACCOUNT_CHANGED = "account_changed"
    ACCOUNT_DELETED = "account_deleted"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    GROUP_CREATED = "group_created"
    GROUP_CHANGED = "group_changed"
    GROUP_DELETED = "group_deleted"


SERVER = "server"
"""The actor when the server itself does something and nobody asked it to."""


ActorAndAddress = tuple[str, str]
"""An actor and its address, as rows name them."""

_acting: ContextVar[Callable[[], ActorAndAddress] | None] = ContextVar("agenthost_acting", default=None)


@contextmanager
def acting(who: Callable[[], ActorAndAddress]) -> Iterator[None]:
    """Name the person that the block acts for; ``who`` is called only if something is recorded."""
    token = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(token)


def acting_now() -> ActorAndAddress:
    """The person that the running code acts for: an operator in the admin, or the user of the shell."""
    who = _acting.get()
    return (shell_user(), socket.gethostname()) if who is None else who()


def shell_user() -> str:
    try:
        return f"shell:{getpass.getuser()}"
    except (KeyError, OSError):
        # A container may run as a number that has no name.
        return "shell"


def operator(name: str) -> str:
    """An account of the admin, as rows name their actor."""
    return f"admin:{name}"


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
