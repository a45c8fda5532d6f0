"""The invitation that a browser has opened: its token is in the browser's session, so that it leaves the address at once."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest

from sessions_app.accounts.people import address
from sessions_app.core.base.errors import InvitationUnusable
from sessions_app.core.tenancy import audit, invitations, rights
from sessions_app.models import Invitation, Member

_KEPT = "invitation"


def keep(request: HttpRequest, token: str) -> None:
    request.session[_KEPT] = token[:100]


def forget(request: HttpRequest) -> None:
    request.session.pop(_KEPT, None)


def find(request: HttpRequest) -> Invitation | None:
    """The open invitation of this browser."""
    token = request.session.get(_KEPT)
    if not isinstance(token, str):
        return None
    try:
        return invitations.find(token)
    except InvitationUnusable:
        return None


def accept(request: HttpRequest, user: User) -> Member:
    """Make the account a member. ``InvitationUnusable`` if the invitation was used meanwhile."""
    token = request.session.get(_KEPT)
    name = audit.actor_of(user.get_username(), is_staff=rights.account_of(user).is_staff)
    member = invitations.accept(token if isinstance(token, str) else "", user, actor=name, address=address(request))
    rights.forget(user)
    return member
