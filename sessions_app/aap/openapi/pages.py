"""The documentation: a page for each version and for the management API, and the OpenAPI document that it shows.

Included at /docs/. The page loads nothing from other hosts and runs only scripts from files of this server. The
document is made (document.py) at its first request.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from sessions_app.aap.openapi.routes import routes

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # The style sheet contains its icons.
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


@require_safe
def page(request: HttpRequest, version: int | None = None) -> HttpResponse:
    versions = list(routes())
    shown = versions[0] if version is None else version
    if shown not in versions:
        raise Http404
    return _shown(request, {"version": shown, "versions": versions})


def _shown(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    answer = render(request, "agenthost/docs.html", context)
    answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def openapi(request: HttpRequest, version: int) -> HttpResponse:  # noqa: ARG001 - Django's signature
    # Not at the top: only a process that serves the document shall load the library.
    from sessions_app.aap.openapi.document import document

    if version not in routes():
        raise Http404
    return HttpResponse(document(version), content_type="application/json", headers={"Cache-Control": "no-cache"})


@require_safe
def management_page(request: HttpRequest) -> HttpResponse:
    return _shown(request, {"versions": list(routes())})


@require_safe
def management_openapi(_request: HttpRequest) -> HttpResponse:
    from sessions_app.aap.management import openapi as management

    return HttpResponse(management.document(), content_type="application/json", headers={"Cache-Control": "no-cache"})


urlpatterns = [
    path("", page, name="docs"),
    path("v<int:version>/", page, name="docs-version"),
    path("management/", management_page, name="docs-management"),
    path("openapi-management.json", management_openapi, name="openapi-management"),
    path("openapi-v<int:version>.json", openapi, name="openapi"),
]
