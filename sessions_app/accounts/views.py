"""Pages of an account: overview, invitation, list of signed-in sessions."""

from __future__ import annotations

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.mfa.models import Authenticator
from allauth.usersessions.internal.flows.sessions import end_sessions
from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from sessions_app.accounts import adapters, invited, second_factor
from sessions_app.accounts.forms import EndSessionForm, InvitedForm
from sessions_app.accounts.people import account, actor, address, own_page
from sessions_app.core.base.errors import InvitationUnusable
from sessions_app.core.tenancy import sign_ins


@require_safe
def admin_login(request: HttpRequest) -> HttpResponse:
    """Where the admin sends people who may not use it: to the sign-in, or to a page that says so."""
    if request.user.is_authenticated:
        return own_page(request, "agenthost/people/not_staff.html", {}, status=403)
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


@require_safe
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    user = request.user
    assert isinstance(user, User)
    factors = Authenticator.objects.filter(user_id=user.pk)
    context = {
        "account": account(request),
        "has_password": user.has_usable_password(),
        "factors": [factor.get_type_display() for factor in factors],
        "required": second_factor.is_required(user),
        "company": adapters.company_name(),
    }
    return own_page(request, "agenthost/people/overview.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def sessions(request: HttpRequest) -> HttpResponse:
    """The browsers in which the account is signed in; each can be signed out."""
    user = request.user
    assert isinstance(user, User)
    rows = sorted(UserSession.objects.purge_and_list(user), key=lambda row: row.created_at, reverse=True)
    if request.method == "POST":
        form = EndSessionForm(request.POST)
        chosen = form.cleaned_data.get("session") if form.is_valid() else None
        ending = [row for row in rows if (row.pk == chosen if chosen else not row.is_current())]
        sign_ins.ended(user.get_username(), len(ending), actor=actor(request), address=address(request))
        end_sessions(request, ending)
        if not request.user.is_authenticated:
            return HttpResponseRedirect(reverse("account_login"))
        messages.success(request, f"Signed out: {len(ending)} session{'' if len(ending) == 1 else 's'}.")
        return HttpResponseRedirect(reverse("usersessions_list"))
    return own_page(request, "agenthost/people/sessions.html", {"sessions": rows, "others": len(rows) > 1})


@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest) -> HttpResponse:
    """Accept an invitation: with the account that is signed in, with a new one, or with the company's sign-in."""
    token = request.GET.get("token")
    if token is not None:
        # The token leaves the address bar, the history and the Referer. Query strings are not logged.
        invited.keep(request, token)
        return HttpResponseRedirect(reverse("accounts:invitation"))
    found = invited.find(request)
    if found is None:
        return own_page(request, "agenthost/people/no_invitation.html", {}, status=404)
    user = request.user if isinstance(request.user, User) and request.user.is_authenticated else None
    form = InvitedForm(request.POST if request.method == "POST" and user is None else None, email=found.email)
    try:
        if request.method == "POST" and user is not None:
            invited.accept(request, user)
            return _joined(request, found.tenant.slug)
        if request.method == "POST" and form.is_valid():
            with transaction.atomic():
                new = form.save()
                invited.accept(request, new)
            invited.forget(request)
            record_authentication(request, new, method="password", username=new.get_username())
            response: HttpResponse = perform_login(
                request, Login(user=new, redirect_url=reverse("console:tenant", args=[found.tenant.slug]))
            )
            return response
    except InvitationUnusable:
        return own_page(request, "agenthost/people/no_invitation.html", {}, status=404)
    context = {"invitation": found, "form": form, "company": adapters.company_name()}
    return own_page(request, "agenthost/people/invitation.html", context)


def _joined(request: HttpRequest, slug: str) -> HttpResponse:
    invited.forget(request)
    return HttpResponseRedirect(reverse("console:tenant", args=[slug]))
