"""Answers to requests that no view answered: unknown paths, and what nobody expected."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse

from agenthost.guard import told
from sessions_app.aap.problems import FAILED, NOTHING_HERE, Problem, problem_of


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _answer(request, Problem(400, "The request cannot be read."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _answer(request, Problem(403, "This is not allowed."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001 - Django's signature
    return _answer(request, NOTHING_HERE)


def server_error(request: HttpRequest) -> HttpResponse:
    # Django has logged the exception with its traceback; it is still the one being handled. A database
    # that is away is no failure of ours, and is told as what it is.
    exception = sys.exception()
    known = problem_of(exception) if isinstance(exception, Exception) else None
    return _answer(request, known or FAILED)


def _answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    content_type, content = told(problem, request.path_info, request.META.get("agenthost.request_id", ""))
    return HttpResponse(content, status=problem.status, content_type=content_type, headers=dict(problem.headers))
