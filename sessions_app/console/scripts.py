"""What views for scripts of the console need: errors as JSON, and the origin of the page that asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse

from sessions_app.accounts.people import account
from sessions_app.console.requests import STATUSES, status_and_text
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.tenancy import origins
from sessions_app.core.tenancy.rights import Account

P = ParamSpec("P")


def for_scripts(
    view: Callable[Concatenate[HttpRequest, Account, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """A view for scripts of the console: like ``for_members``, but errors are JSON."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, account(request), *args, **kwargs)
        except tuple(STATUSES) as error:
            status, text = status_and_text(error)
            return JsonResponse({"detail": text}, status=status)

    wrapped: Any = login_required(guarded)
    return wrapped  # type: ignore[no-any-return]


def page_origin(request: HttpRequest) -> str:
    """The origin of the page that asks: this server's, as the browser sees it."""
    origin = request.headers.get("Origin", "")
    if not origins.is_host(origin, request.get_host()):
        raise NotPossible("tokens are made for pages of this server only; open the page on this server")
    return origin
