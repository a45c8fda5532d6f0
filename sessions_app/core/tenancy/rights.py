"""Rights of accounts: one table from roles to rights, and the functions that faces call before they act.

An account has one role in each tenant of which it is a member, and may have a role as staff, for all tenants or for some.
Superusers have all rights. A tenant of which an account sees nothing does not exist for it: ``require`` raises
``TenantNotFound``, the same error as for a tenant that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from sessions_app.core.base.caller import OF_OWNERS
from sessions_app.core.base.errors import RightMissing, TenantNotFound
from sessions_app.models import Member, Role, Staff, StaffRole, Tenant

M = TypeVar("M", bound=Model)


class Right(StrEnum):
    # Of one tenant.
    SEE_TENANT = "see_tenant"
    SEE_MEMBERS = "see_members"
    MANAGE_MEMBERS = "manage_members"
    SEE_KEYS = "see_keys"
    MANAGE_KEYS = "manage_keys"
    SEE_USE = "see_use"
    SEE_SESSIONS = "see_sessions"
    READ_TRANSCRIPTS = "read_transcripts"
    USE_AGENTS = "use_agents"
    STOP_TURNS = "stop_turns"
    DELETE_SESSIONS = "delete_sessions"
    EXPORT_SESSIONS = "export_sessions"
    SEE_WEBHOOKS = "see_webhooks"
    MANAGE_WEBHOOKS = "manage_webhooks"
    SEE_AUDIT = "see_audit"
    EXPORT_AUDIT = "export_audit"
    # Of the operator, for one tenant.
    CHANGE_TENANT = "change_tenant"
    DELETE_TENANT = "delete_tenant"
    FORK_SESSIONS = "fork_sessions"
    # Of the whole server: never for staff who are limited to some tenants.
    CREATE_TENANTS = "create_tenants"
    SEE_SERVER = "see_server"
    SEE_SERVER_AUDIT = "see_server_audit"
    CHECK_AGENTS = "check_agents"
    # Of superusers alone.
    MANAGE_ACCOUNTS = "manage_accounts"


OF_THE_SERVER = frozenset(
    {Right.CREATE_TENANTS, Right.SEE_SERVER, Right.SEE_SERVER_AUDIT, Right.CHECK_AGENTS, Right.MANAGE_ACCOUNTS}
)

_READER = frozenset(
    {Right.SEE_TENANT, Right.SEE_MEMBERS, Right.SEE_KEYS, Right.SEE_USE, Right.SEE_SESSIONS, Right.READ_TRANSCRIPTS}
)
_DEVELOPER = _READER | {
    Right.MANAGE_KEYS,
    Right.USE_AGENTS,
    Right.STOP_TURNS,
    Right.DELETE_SESSIONS,
    Right.EXPORT_SESSIONS,
    Right.SEE_WEBHOOKS,
    Right.MANAGE_WEBHOOKS,
}
_OWNER = _DEVELOPER | {Right.MANAGE_MEMBERS, Right.SEE_AUDIT, Right.EXPORT_AUDIT}
_AUDITOR = frozenset(
    {
        Right.SEE_TENANT,
        Right.SEE_MEMBERS,
        Right.SEE_KEYS,
        Right.SEE_USE,
        Right.SEE_SESSIONS,
        Right.SEE_WEBHOOKS,
        Right.SEE_AUDIT,
        Right.EXPORT_AUDIT,
        Right.SEE_SERVER,
        Right.SEE_SERVER_AUDIT,
    }
)
_OPERATOR = _AUDITOR | {
    Right.MANAGE_MEMBERS,
    Right.MANAGE_KEYS,
    Right.STOP_TURNS,
    Right.DELETE_SESSIONS,
    Right.EXPORT_SESSIONS,
    Right.MANAGE_WEBHOOKS,
    Right.CHANGE_TENANT,
    Right.DELETE_TENANT,
    Right.FORK_SESSIONS,
    Right.CHECK_AGENTS,
    Right.CREATE_TENANTS,
}

RIGHTS: Mapping[Role | StaffRole, frozenset[Right]] = {
    Role.OWNER: _OWNER,
    Role.DEVELOPER: _DEVELOPER,
    Role.READER: _READER,
    StaffRole.OPERATOR: _OPERATOR,
    StaffRole.AUDITOR: _AUDITOR,
}
"""The one table of rights. Staff read transcripts only if their account has that right of its own."""

NEEDS_TRANSCRIPTS = frozenset({Right.EXPORT_SESSIONS})
"""Rights that show transcripts as well, so staff have them only with the right to read transcripts."""


@dataclass(frozen=True, slots=True)
class Account:
    """A signed-in account with what its rights follow from."""

    id: int
    name: str
    is_superuser: bool = False
    staff: frozenset[Right] = frozenset()
    """The rights as staff."""
    staff_tenants: frozenset[int] | None = None
    """The tenants to which staff are limited; None: all."""
    roles: Mapping[int, Role] = field(default_factory=dict)
    """The role in each tenant, by the tenant's number."""

    @property
    def is_staff(self) -> bool:
        """Whether the account may use the admin."""
        return self.is_superuser or bool(self.staff)

    @property
    def is_limited(self) -> bool:
        """Whether the account is staff of some tenants only."""
        return not self.is_superuser and self.staff_tenants is not None


NOBODY = Account(0, "")

_CACHED = "_agenthost_account"


def account_of(user: Any) -> Account:
    """The account of ``request.user``. Cached on the object, so for one request. An anonymous or disabled user has no rights."""
    if not isinstance(user, User) and not hasattr(user, "_wrapped"):
        return NOBODY
    if not user.is_authenticated or not user.is_active:
        return NOBODY
    cached: Account | None = getattr(user, _CACHED, None)
    if cached is None:
        cached = _load(user)
        setattr(user, _CACHED, cached)
    return cached


def forget(user: Any) -> None:
    """Load the account of this object again at its next use: its roles have changed."""
    user.__dict__.pop(_CACHED, None)


def _load(user: User) -> Account:
    rights: frozenset[Right] = frozenset()
    tenants: frozenset[int] | None = None
    staff = Staff.objects.filter(user_id=user.pk).first()
    if user.is_superuser:
        rights = frozenset(Right)
    elif staff is not None:
        rights = RIGHTS[StaffRole(staff.role)]
        rights = rights | {Right.READ_TRANSCRIPTS} if staff.reads_transcripts else rights - NEEDS_TRANSCRIPTS
        if staff.limited:
            rights -= OF_THE_SERVER
            tenants = frozenset(staff.tenants.values_list("pk", flat=True))
    members = Member.objects.filter(user_id=user.pk).values_list("tenant_id", "role")
    return Account(
        id=user.pk,
        name=user.get_username(),
        is_superuser=user.is_superuser,
        staff=rights,
        staff_tenants=tenants,
        roles={tenant: Role(role) for tenant, role in members},
    )


def as_staff(account: Account, right: Right, tenant: int | None = None) -> bool:
    """Whether the account has a right as staff; with ``tenant``, for that tenant. For the admin."""
    if right not in account.staff:
        return False
    return tenant is None or account.staff_tenants is None or tenant in account.staff_tenants


def as_member(account: Account, right: Right, tenant: int) -> bool:
    """Whether the account has a right in a tenant by its role there. For the console."""
    role = account.roles.get(tenant)
    return role is not None and right in RIGHTS[role]


def has(account: Account, right: Right, tenant: int) -> bool:
    """Whether the account has a right in a tenant, as member or as staff."""
    return as_member(account, right, tenant) or as_staff(account, right, tenant)


def require(account: Account, right: Right, tenant: Tenant | None = None) -> None:
    """Raise ``RightMissing`` without the right, or ``TenantNotFound`` if the account may not even see the tenant.

    Rights of the server (``OF_THE_SERVER``) need no tenant.
    """
    if tenant is None:
        if not as_staff(account, right):
            raise RightMissing(right)
        return
    if not has(account, Right.SEE_TENANT, tenant.pk):
        raise TenantNotFound
    if not has(account, right, tenant.pk):
        raise RightMissing(right)


def own_tenant(account: Account, slug: str, right: Right = Right.SEE_TENANT) -> Tenant:
    """The tenant with this slug, of which the account is a member with this right. For the console."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None or not as_member(account, Right.SEE_TENANT, tenant.pk):
        raise TenantNotFound
    if not as_member(account, right, tenant.pk):
        raise RightMissing(right)
    return tenant


def require_scopes(account: Account, tenant: Tenant, scopes: Collection[str]) -> None:
    """Raise ``RightMissing`` if a key with these scopes could do what only owners may, and the account may not."""
    if OF_OWNERS & set(scopes):
        require(account, Right.MANAGE_MEMBERS, tenant)


def of_staff(account: Account, right: Right, rows: QuerySet[M], path: str = "tenant") -> QuerySet[M]:
    """The rows whose tenant (``path``; ``pk`` for tenants) the account sees with this right as staff. For the admin's lists."""
    if right not in account.staff:
        return rows.none()
    if account.staff_tenants is None:
        return rows
    return rows.filter(**{f"{path}__in": sorted(account.staff_tenants)})
