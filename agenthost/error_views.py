"""Django's error views: responses to unknown paths, malformed requests and unexpected exceptions."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse

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


def _respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    content_type, content = rendered(problem, request.path_info, request.META.get("agenthost.request_id", ""))
    return HttpResponse(content, status=problem.status, content_type=content_type, headers=dict(problem.headers))
