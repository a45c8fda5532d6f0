"""Django's error views: responses to unknown paths, malformed requests and unexpected exceptions."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from agenthost.guard import rendered
from sessions_app.aap.problems import FAILED, NOTHING_HERE, Problem, problem_of


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _respond(request, Problem(400, "The request is malformed."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _respond(request, Problem(403, "This is not allowed."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _respond(request, NOTHING_HERE)


def server_error(request: HttpRequest) -> HttpResponse:
    # Django has logged the exception with its traceback, and is still handling it. Known ones, such as a
    # database that does not answer, have a status of their own.
    exception = sys.exception()
    known = problem_of(exception) if isinstance(exception, Exception) else None
    return _respond(request, known or FAILED)


_OF_PEOPLE = ("/admin/", "/console/", "/accounts/")
_HEADINGS = {403: "This is not allowed", 404: "Nothing is here", 503: "The server cannot answer now"}
_ADVICE = {403: "Your account has no right to it. A superuser of this server gives rights to staff."}


def _respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    if request.path_info.startswith(_OF_PEOPLE) and "text/html" in request.headers.get("Accept", ""):
        return _page(request, problem)
    content_type, content = rendered(problem, request.path_info, request.META.get("agenthost.request_id", ""))
    return HttpResponse(content, status=problem.status, content_type=content_type, headers=dict(problem.headers))


def _page(request: HttpRequest, problem: Problem) -> HttpResponse:
    """For people. It needs no database."""
    status = problem.status
    context = {
        "heading": _HEADINGS.get(status, "This did not work"),
        "text": problem.detail,
        "advice": _ADVICE.get(status, ""),
        "again": request.get_full_path() if status >= 500 and request.method == "GET" else "",
        "request_id": request.META.get("agenthost.request_id", "") if status >= 500 else "",
    }
    page = render_to_string("agenthost/people/fault.html", context)
    return HttpResponse(page, status=status, headers=dict(problem.headers))
