"""The members of a tenant: inviting, roles, removing."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST, require_safe

from sessions_app.accounts import mail
from sessions_app.accounts.people import account, actor, address
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import invitations, members, rights
from sessions_app.core.tenancy.rights import RIGHTS, Account, Right
from sessions_app.models import Member, Role, Tenant

ROLES = [
    (Role.OWNER.value, "Owner: everything of the tenant, its members and its audit"),
    (Role.DEVELOPER.value, "Developer: keys, sessions, agents and webhooks"),
    (Role.READER.value, "Reader: sees use, keys and sessions, and changes nothing"),
]


class InviteForm(forms.Form):
    role = forms.ChoiceField(choices=ROLES, initial=Role.DEVELOPER.value)
    email = forms.EmailField(required=False, label="E-mail address (optional)")


@require_safe
@for_members
def tenant(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    found = rights.own_tenant(by, slug, Right.SEE_MEMBERS)
    return _page(request, by, found, InviteForm())


@sensitive_variables()
@require_POST
@for_members
def invite(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    """Make an invitation and show its link, once: the response to the POST itself."""
    found = rights.own_tenant(by, slug, Right.MANAGE_MEMBERS)
    form = InviteForm(request.POST)
    if not form.is_valid():
        return _page(request, by, found, form, status=422)
    email = form.cleaned_data["email"]
    try:
        issued = invitations.invite(
            by, found, members.role_of(form.cleaned_data["role"]), email, actor=actor(request), address=address(request)
        )
    except NotPossible as error:
        form.add_error(None, str(error))
        return _page(request, by, found, form, status=409)
    link = request.build_absolute_uri(f"{reverse('accounts:invitation')}?token={issued.token}")
    context = {
        "invitation": issued.invitation,
        "link": link,
        "mailed": bool(email) and mail.send_invitation(issued.invitation, link),
    }
    return tenant_page(request, by, found, "members", "agenthost/console/invited.html", context)


@require_POST
@for_members
def withdraw(request: HttpRequest, by: Account, slug: str, invitation_id: int) -> HttpResponse:
    found = rights.own_tenant(by, slug, Right.MANAGE_MEMBERS)
    invitations.withdraw(by, found, invitation_id, actor=actor(request), address=address(request))
    messages.success(request, "The invitation was withdrawn.")
    return HttpResponseRedirect(reverse("console:members", args=[slug]))


@require_POST
@for_members
def change(request: HttpRequest, by: Account, slug: str, member_id: int) -> HttpResponse:
    """Change a member's role, or remove the member if the form says so."""
    found = rights.own_tenant(by, slug)
    who, where = actor(request), address(request)
    try:
        if "remove" in request.POST:
            members.remove(by, found, member_id, actor=who, address=where)
            messages.success(request, "The member was removed.")
        else:
            role = members.role_of(request.POST.get("role", ""))
            member = members.change_role(by, found, member_id, role, actor=who, address=where)
            messages.success(request, f"{member.user.get_username()} is {role} now.")
    except NotPossible as error:
        messages.error(request, f"{str(error)[:1].upper()}{str(error)[1:]}.")
    rights.forget(request.user)
    still_there = rights.as_member(account(request), Right.SEE_TENANT, found.pk)
    return HttpResponseRedirect(reverse("console:members", args=[slug]) if still_there else reverse("console:home"))


def _page(request: HttpRequest, by: Account, found: Tenant, form: InviteForm, status: int = 200) -> HttpResponse:
    manages = rights.as_member(by, Right.MANAGE_MEMBERS, found.pk)
    context = {
        "rights": sorted(right.replace("_", " ") for right in RIGHTS[by.roles[found.pk]]),
        "members": Member.objects.filter(tenant=found).select_related("user").order_by("user__username"),
        "own_id": by.id,
        "manages": manages,
        "roles": [role.value for role in Role],
        "pending": invitations.pending(found) if manages else (),
        "form": form,
    }
    return tenant_page(request, by, found, "members", "agenthost/console/members.html", context, status=status)
