"""The documentation as it is served: a page for each version, and the OpenAPI document that it shows.

Included at /docs/. The page loads nothing from elsewhere and runs no script that does not stand in a file of this
server; what it shows is loaded by it, and made (document.py) when it is first asked for.
"""

from __future__ import annotations

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
        # Its icons stand in its style sheet.
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
    answer = render(request, "agenthost/docs.html", {"version": shown, "versions": versions})
    answer["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def openapi(request: HttpRequest, version: int) -> HttpResponse:  # noqa: ARG001 - Django's signature
    # Here, or every process would carry the library that makes it.
    from sessions_app.aap.openapi.document import document

    if version not in routes():
        raise Http404
    return HttpResponse(document(version), content_type="application/json", headers={"Cache-Control": "no-cache"})


urlpatterns = [
    path("", page, name="docs"),
    path("v<int:version>/", page, name="docs-version"),
    path("openapi-v<int:version>.json", openapi, name="openapi"),
]
