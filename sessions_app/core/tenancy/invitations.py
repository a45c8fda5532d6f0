"""Invitations: links with which people become members of a tenant, without open sign-up.

A link has 32 random bytes, of which the SHA-256 is stored. It is returned once, expires, and works once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core.base.errors import Fault, InvalidInput, InvitationUnusable, MemberNotFound, NotPossible
from sessions_app.core.tenancy import audit, members, rights
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Invitation, Member, Role, Tenant

LIFETIME = timedelta(days=7)
MOST_OPEN = 100
"""Open invitations of one tenant."""

_FORM = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Issued:
    """A new invitation. ``token`` is not stored."""

    invitation: Invitation
    token: str = field(repr=False)


def invite(by: Account, tenant: Tenant, role: Role, email: str = "", *, actor: str, address: str) -> Issued:
    """An invitation to the tenant, by an account that manages its members."""
    rights.require(by, Right.MANAGE_MEMBERS, tenant)
    return issue(tenant, role, email, actor=actor, address=address)


def issue(tenant: Tenant, role: Role, email: str = "", *, actor: str, address: str) -> Issued:
    """An invitation to the tenant; for commands, whose user has a shell and so all rights."""
    email = email.strip()
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise InvalidInput([Fault(("email",), "this is not an e-mail address")]) from None
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        Tenant.objects.select_for_update().only("pk").get(pk=tenant.pk)
        if pending(tenant).count() >= MOST_OPEN:
            raise NotPossible(f"the tenant has {MOST_OPEN} open invitations, which is the limit; withdraw some")
        invitation = Invitation.objects.create(
            tenant=tenant,
            role=role,
            email=email,
            digest=_digest(token),
            invited_by=actor[:200],
            expires_at=timezone.now() + LIFETIME,
        )
        _record(audit.Action.MEMBER_INVITED, invitation, actor, address, f"role: {role}")
    return Issued(invitation, token)


def pending(tenant: Tenant) -> QuerySet[Invitation]:
    """The invitations that can still be accepted."""
    return Invitation.objects.filter(tenant=tenant, **_OPEN, expires_at__gt=Now())


def withdraw(by: Account, tenant: Tenant, invitation_id: int, *, actor: str, address: str) -> None:
    """Make an invitation unusable."""
    rights.require(by, Right.MANAGE_MEMBERS, tenant)
    take_back(tenant, invitation_id, lambda _invitation: None, actor=actor, address=address)


def take_back(tenant: Tenant, invitation_id: int, check: Callable[[Invitation], object], *, actor: str, address: str) -> None:
    """The same, if ``check`` raises nothing for the row."""
    with transaction.atomic():
        invitation = pending(tenant).select_for_update().filter(pk=invitation_id).first()
        if invitation is None:
            raise MemberNotFound
        check(invitation)
        Invitation.objects.filter(pk=invitation.pk).update(revoked_at=Now())
        _record(audit.Action.INVITATION_WITHDRAWN, invitation, actor, address, f"role: {invitation.role}")


def find(token: str) -> Invitation:
    """The invitation of a link. ``InvitationUnusable`` if it is unknown, used, withdrawn or expired: the same in all cases."""
    if not _FORM.fullmatch(token):
        raise InvitationUnusable
    found = (
        Invitation.objects.select_related("tenant")
        .filter(digest=_digest(token), **_OPEN, expires_at__gt=Now(), tenant__suspended_at=None)
        .first()
    )
    if found is None:
        raise InvitationUnusable
    return found


def accept(token: str, user: User, *, actor: str, address: str) -> Member:
    """Make this account a member. The link is used up in the same transaction; of two at the same moment one fails."""
    with transaction.atomic():
        invitation = find(token)
        used = Invitation.objects.filter(pk=invitation.pk, **_OPEN, expires_at__gt=Now()).update(
            accepted_at=Now(), accepted_by=user.get_username()[:200]
        )
        if not used:
            raise InvitationUnusable
        member = members.add(invitation.tenant, user, Role(invitation.role), actor=actor, address=address)
        _record(audit.Action.INVITATION_ACCEPTED, invitation, actor, address, f"account {user.get_username()}")
    return member


_OPEN = {"accepted_at": None, "revoked_at": None}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _record(action: audit.Action, invitation: Invitation, actor: str, address: str, detail: str) -> None:
    target = f"invitation {invitation.pk}" + (f" to {invitation.email}" if invitation.email else "")
    audit.record(actor=actor, address=address, action=action, target=target, tenant=invitation.tenant, detail=detail)
