"""The endpoints of members and invitations. They need the scope ``members``, and a key that manages its whole tenant."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request

from sessions_app.aap.dialect import Document
from sessions_app.aap.management import parameters, types
from sessions_app.aap.management.webhook_views import time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer, no_content
from sessions_app.accounts import mail
from sessions_app.core.base.caller import MEMBERS
from sessions_app.core.base.errors import MemberNotFound
from sessions_app.core.tenancy import member_management
from sessions_app.models import Invitation, Member


class _Endpoint(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD", "POST", "PATCH", "DELETE"), MEMBERS)
    http_method_names = ["get", "head", "post", "patch", "delete"]

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        member_management.require(caller_of(request))


class Members(_Endpoint):
    def get(self, request: Request) -> HttpResponse:
        before = parameters.before(request.GET)
        found = member_management.listed(caller_of(request), before=before, most=parameters.PAGE + 1)
        return json_answer(parameters.paged("members", found, _member, lambda row: row.pk))


class OneMember(_Endpoint):
    def patch(self, request: Request, member: str) -> HttpResponse:
        number = _number(member)
        wanted: types.MemberChange = parameters.body(request, types.MEMBER_CHANGE, types.MemberChange)
        return json_answer(_member(member_management.set_role(caller_of(request), number, wanted["role"])))

    def delete(self, request: Request, member: str) -> HttpResponse:
        member_management.remove(caller_of(request), _number(member))
        return no_content()


class Invitations(_Endpoint):
    def get(self, request: Request) -> HttpResponse:
        return json_answer({"invitations": [_invitation(row) for row in member_management.pending(caller_of(request))]})

    @sensitive_variables()
    def post(self, request: Request) -> HttpResponse:
        wanted: types.NewInvitation = parameters.body(request, types.NEW_INVITATION, types.NewInvitation)
        issued = member_management.invite(caller_of(request), wanted["role"], wanted.get("email", ""))
        link = request.build_absolute_uri(f"{reverse('accounts:invitation')}?token={issued.token}")
        shown = {**_invitation(issued.invitation), "link": link, "mailed": mail.send_invitation(issued.invitation, link)}
        answer = json_answer(shown, 201)
        answer["Location"] = f"{request.path}/{issued.invitation.pk}"
        answer["Cache-Control"] = "no-store"
        return answer


class OneInvitation(_Endpoint):
    def delete(self, request: Request, invitation: str) -> HttpResponse:
        member_management.withdraw(caller_of(request), _number(invitation))
        return no_content()


def _number(text: str) -> int:
    found = parameters.number(text)
    if found is None:
        raise MemberNotFound
    return found


def _member(row: Member) -> Document:
    shown: types.Member = {
        "id": str(row.pk),
        "name": row.user.get_username(),
        "role": row.role,
        "createdAt": time_text(row.created_at) or "",
    }
    return dict(shown)


def _invitation(row: Invitation) -> Document:
    shown: types.Invitation = {
        "id": str(row.pk),
        "role": row.role,
        "email": row.email,
        "invitedBy": row.invited_by,
        "createdAt": time_text(row.created_at) or "",
        "expiresAt": time_text(row.expires_at) or "",
    }
    return dict(shown)
