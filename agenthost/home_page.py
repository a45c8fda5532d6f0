"""The page at /: a short description of the server, with links to its console, documentation and admin."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from sessions_app.aap.openapi.pages import CONTENT_SECURITY_POLICY

TEXT = """Agenthost: a server for LLM agents.

AAP      {api}   (HTTP; versions 1 and 2 also served), documented at {docs}
AHP      {ahp}   (WebSocket)
Console  {console}   (for members of tenants)
Admin    {admin}
Health   {ready}
"""


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """HTML for browsers, plain text for everything else."""
    urls = {
        "api": "/aap/v3",
        "ahp": "/ahp",
        "docs": reverse("docs"),
        "console": reverse("console:home"),
        "admin": reverse("admin:index"),
        "ready": "/readyz",
    }
    if request.get_preferred_type(["text/plain", "text/html"]) == "text/html":
        response = render(request, "agenthost/home.html", urls)
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    else:
        response = HttpResponse(TEXT.format_map(urls), content_type="text/plain; charset=utf-8")
    response["Vary"] = "Accept"
    response["Cache-Control"] = "no-cache"
    return response
