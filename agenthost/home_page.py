"""The page at /: what this server is, and where its documentation and its admin are."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from sessions_app.aap.openapi.pages import CONTENT_SECURITY_POLICY

TEXT = """Agenthost: a server for LLM agents.

API      {api}   (AAP; versions 2 and 1 beside it), documented at {docs}
Live     {ahp}   (AHP, WebSocket)
Admin    {admin}
Health   {ready}
"""


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """HTML for browsers, plain text for everything else."""
    addresses = {
        "api": "/aap/v3",
        "ahp": "/ahp",
        "docs": reverse("docs"),
        "admin": reverse("admin:index"),
        "ready": "/readyz",
    }
    if request.get_preferred_type(["text/plain", "text/html"]) == "text/html":
        answer = render(request, "agenthost/home.html", addresses)
        answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    else:
        answer = HttpResponse(TEXT.format_map(addresses), content_type="text/plain; charset=utf-8")
    answer["Vary"] = "Accept"
    answer["Cache-Control"] = "no-cache"
    return answer
