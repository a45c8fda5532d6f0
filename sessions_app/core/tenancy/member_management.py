"""What a key may do with the members of its tenant: give and take roles that may do no more than itself."""

from __future__ import annotations

from collections.abc import Mapping

from sessions_app.core.base.caller import AUDIT, EXPORT, KEYS, MEMBERS, READ, USE, WEBHOOKS, WRITE, Caller
from sessions_app.core.base.errors import NotPossible, ScopeMissing
from sessions_app.core.tenancy import api_audit, invitations, key_management, members
from sessions_app.core.tenancy.invitations import Issued
from sessions_app.models import Invitation, Member, Role, Tenant

_READER = (READ, USE)
_DEVELOPER = (*_READER, "meta:read", WRITE, WEBHOOKS, KEYS, EXPORT)
SCOPES: Mapping[Role, tuple[str, ...]] = {
    Role.READER: _READER,
    Role.DEVELOPER: _DEVELOPER,
    Role.OWNER: (*_DEVELOPER, MEMBERS, AUDIT),
}
"""The scopes that allow what a role allows."""


def require(caller: Caller) -> None:
    """ScopeMissing or NotPossible for callers that may not manage members."""
    caller.require(MEMBERS)
    key_management.require_unlimited(caller, "manage members")


def listed(caller: Caller, *, before: int | None = None, most: int = 50) -> list[Member]:
    """The tenant's members, the newest first. ``before``: only smaller row numbers."""
    require(caller)
    rows = Member.objects.filter(tenant_id=caller.tenant).select_related("user").order_by("-pk")
    return list((rows if before is None else rows.filter(pk__lt=before))[:most])


def set_role(caller: Caller, number: int, role: str) -> Member:
    """Give a member another role."""
    wanted = members.role_of(role)
    require(caller)
    _require_role(caller, wanted)
    _require_no_end(caller)
    return members.set_role(_tenant(caller), number, wanted, lambda now: _require_role(caller, now), **api_audit.by(caller))


def remove(caller: Caller, number: int) -> None:
    require(caller)
    members.take_out(_tenant(caller), number, lambda member: _require_role(caller, Role(member.role)), **api_audit.by(caller))


def pending(caller: Caller) -> list[Invitation]:
    """The open invitations, the newest first."""
    require(caller)
    return list(invitations.pending(_tenant(caller)).order_by("-pk"))


def invite(caller: Caller, role: str, email: str = "") -> Issued:
    wanted = members.role_of(role)
    require(caller)
    _require_role(caller, wanted)
    _require_no_end(caller)
    return invitations.issue(_tenant(caller), wanted, email, **api_audit.by(caller))


def withdraw(caller: Caller, number: int) -> None:
    require(caller)
    check = lambda invitation: _require_role(caller, Role(invitation.role))  # noqa: E731
    invitations.take_back(_tenant(caller), number, check, **api_audit.by(caller))


def _tenant(caller: Caller) -> Tenant:
    return Tenant.objects.get(pk=caller.tenant)


def _require_role(caller: Caller, role: Role) -> None:
    for scope in SCOPES[role]:
        if not caller.may(scope):
            raise ScopeMissing(
                scope, f"a key manages only members who may do no more than itself, and this is about the role {role}"
            )


def _require_no_end(caller: Caller) -> None:
    """A member stays: somebody whose key ends must not become one with it."""
    if key_management.end_of(caller) is not None:
        raise NotPossible("a key that expires gives no roles, which do not expire; use a key without expiry, or the console")
