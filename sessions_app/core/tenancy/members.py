"""Members of tenants: adding, changing roles, removing. Every change is recorded in the audit in its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import transaction

from sessions_app.core.base.errors import Fault, InvalidInput, MemberNotFound, NotPossible
from sessions_app.core.tenancy import audit, rights, tokens
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Member, Role, Tenant

MOST = 1000
"""Members of one tenant."""


def role_of(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput([Fault(("role",), f"there is no role {text!r}; the roles are {', '.join(Role.values)}")]) from None


def add(tenant: Tenant, user: User, role: Role, *, actor: str, address: str = "") -> Member:
    """Make an account a member; one that is a member already keeps the higher role. For invitations and commands."""
    with transaction.atomic():
        _lock(tenant)
        member = Member.objects.filter(tenant=tenant, user=user).first()
        if member is None:
            if Member.objects.filter(tenant=tenant).count() >= MOST:
                raise NotPossible(f"the tenant {tenant.slug} has {MOST:,} members, which is the limit")
            member = Member.objects.create(tenant=tenant, user=user, role=role)
            _record(audit.Action.MEMBER_ADDED, member, actor, address, f"role: {role}")
        elif _rank(role) > _rank(Role(member.role)):
            _set_role(member, role, actor, address)
    return member


def change_role(by: Account, tenant: Tenant, member_id: int, role: Role, *, actor: str, address: str) -> Member:
    """Give a member another role. The last owner stays owner."""
    rights.require(by, Right.MANAGE_MEMBERS, tenant)
    return set_role(tenant, member_id, role, actor=actor, address=address)


def set_role(
    tenant: Tenant,
    member_id: int,
    role: Role,
    check: Callable[[Role], object] = lambda _role: None,
    *,
    actor: str,
    address: str,
) -> Member:
    """The same, if ``check`` raises nothing for the member's role until now."""
    with transaction.atomic():
        _lock(tenant)
        member = _find(tenant, member_id)
        check(Role(member.role))
        if member.role != role:
            if member.role == Role.OWNER:
                _another_owner(member)
            _set_role(member, role, actor, address)
    return member


def remove(by: Account, tenant: Tenant, member_id: int, *, actor: str, address: str) -> None:
    """Remove a member. Members may leave by themselves; the last owner stays."""
    rights.require(by, Right.SEE_TENANT, tenant)

    def check(member: Member) -> None:
        if member.user_id != by.id:
            rights.require(by, Right.MANAGE_MEMBERS, tenant)

    take_out(tenant, member_id, check, actor=actor, address=address)


def take_out(tenant: Tenant, member_id: int, check: Callable[[Member], object], *, actor: str, address: str) -> None:
    """Remove a member, if ``check`` raises nothing for the row."""
    with transaction.atomic():
        _lock(tenant)
        member = _find(tenant, member_id)
        check(member)
        if member.role == Role.OWNER:
            _another_owner(member)
        _record(audit.Action.MEMBER_REMOVED, member, actor, address, f"role: {member.role}")
        tokens.revoke_of_member(member.tenant, member.user)
        member.delete()


@contextmanager
def keeping_role(by: Account, tenant: Tenant) -> Iterator[None]:
    """A transaction in which the account keeps the role that it was loaded with: what is made here, a removal finds and ends.

    NotPossible if the role has changed since.
    """
    with transaction.atomic():
        _lock(tenant)
        if not Member.objects.filter(tenant=tenant, user_id=by.id, role=by.roles[tenant.pk]).exists():
            raise NotPossible("your role in this tenant has just changed; load the page again")
        yield


def _find(tenant: Tenant, member_id: int) -> Member:
    member = Member.objects.select_related("user").filter(tenant=tenant, pk=member_id).first()
    if member is None:
        raise MemberNotFound
    return member


def _lock(tenant: Tenant) -> None:
    """One change at a time, so that two owners cannot remove each other at the same moment."""
    Tenant.objects.select_for_update().only("pk").get(pk=tenant.pk)


def _another_owner(member: Member) -> None:
    if not Member.objects.filter(tenant_id=member.tenant_id, role=Role.OWNER).exclude(pk=member.pk).exists():
        raise NotPossible("a tenant keeps one owner at least; give another member that role first")


def _set_role(member: Member, role: Role, actor: str, address: str) -> None:
    before, member.role = member.role, role
    member.save(update_fields=["role"])
    # They have the rights of the role before.
    tokens.revoke_of_member(member.tenant, member.user)
    _record(audit.Action.MEMBER_CHANGED, member, actor, address, f"role: {before} → {role}")


def _rank(role: Role) -> int:
    return (Role.READER, Role.DEVELOPER, Role.OWNER).index(role)


def _record(action: audit.Action, member: Member, actor: str, address: str, detail: str) -> None:
    target = f"account {member.user.get_username()}"
    audit.record(actor=actor, address=address, action=action, target=target, tenant=member.tenant, detail=detail)
