"""The page at /: signed-in people go on to the console, others read what this server is; machines get plain text."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from sessions_app.aap.openapi.pages import CONTENT_SECURITY_POLICY
from sessions_app.accounts.people import account

TEXT = """Agenthost: a server for LLM agents.

AAP      {api}   (HTTP; versions 1 and 2 also served), documented at {docs}
AHP      {ahp}   (WebSocket)
Console  {console}   (for members of tenants)
Admin    {admin}
Health   {ready}
"""


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """A page or the console for browsers, plain text for everything else."""
    urls = {
        "api": "/aap/v3",
        "ahp": "/ahp",
        "docs": reverse("docs"),
        "console": reverse("console:home"),
        "admin": reverse("admin:index"),
        "ready": "/readyz",
    }
    if request.get_preferred_type(["text/plain", "text/html"]) == "text/html":
        if request.user.is_authenticated:
            return _private(HttpResponseRedirect(reverse(_first_page(request))))
        response = _private(render(request, "agenthost/home.html", urls))
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    else:
        response = HttpResponse(TEXT.format_map(urls), content_type="text/plain; charset=utf-8")
        response["Cache-Control"] = "no-cache"
    response["Vary"] = "Accept, Cookie"
    return response


def _private(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    response["Vary"] = "Accept, Cookie"
    return response


def _first_page(request: HttpRequest) -> str:
    """Where this person works: staff who are members of no tenant have nothing to do in the console."""
    signed_in = account(request)
    return "admin:index" if signed_in.is_staff and not signed_in.roles else "console:home"
