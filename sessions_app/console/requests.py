"""What every view of the console needs: a signed-in member, and answers to the core's errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from sessions_app.accounts.people import account, own_page
from sessions_app.core.base import errors
from sessions_app.core.tenancy.rights import Account

P = ParamSpec("P")

STATUSES: Mapping[type[errors.DomainError], int] = {
    errors.InvalidInput: 422,
    errors.RightMissing: 403,
    errors.ReasonNeeded: 422,
    errors.TenantNotFound: 404,
    errors.MemberNotFound: 404,
    errors.KeyNotFound: 404,
    errors.WebhookNotFound: 404,
    errors.SessionNotFound: 404,
    errors.NotPossible: 409,
}
"""The status of a page that reports an error of the core; others are faults of the server."""

_TEXTS: Mapping[int, str] = {
    404: "There is nothing here, or it belongs to a tenant of which you are not a member.",
    403: "Your role in this tenant does not allow this. Ask an owner of the tenant.",
}

_HEADINGS: Mapping[int, str] = {404: "Nothing is here", 403: "Your role does not allow this"}


def for_members(
    view: Callable[Concatenate[HttpRequest, Account, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """A view that gets the account of the signed-in person, and whose domain errors become pages."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            return view(request, account(request), *args, **kwargs)
        except tuple(STATUSES) as error:
            return refusal(request, error)
        except Http404:
            return nothing_here(request)

    wrapped: Any = login_required(guarded)
    return wrapped  # type: ignore[no-any-return]


def status_and_text(error: errors.DomainError) -> tuple[int, str]:
    """The status of an answer that reports an error, and what it says."""
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return status, _TEXTS.get(status) or f"{str(error)[:1].upper()}{str(error)[1:]}."


def refusal(request: HttpRequest, error: errors.DomainError) -> HttpResponse:
    """The page that reports an error."""
    status, text = status_and_text(error)
    heading = _HEADINGS.get(status, "This is not possible")
    return own_page(request, "agenthost/console/refusal.html", {"heading": heading, "text": text}, status=status)


def nothing_here(request: HttpRequest) -> HttpResponse:
    """The page for an address that leads nowhere."""
    context = {"heading": _HEADINGS[404], "text": _TEXTS[404]}
    return own_page(request, "agenthost/console/refusal.html", context, status=404)
