"""The refusals of an OpenAPI document. They are made by the code that refuses, so they are what clients get."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request

from sessions_app.aap import problems
from sessions_app.aap.body import parse_object
from sessions_app.aap.problems import Problem
from sessions_app.core.base import errors
from sessions_app.core.base.errors import Fault
from sessions_app.core.tenancy.quotas import Quota

REQUEST_ID = "req_8Jq3mVt5rXw2kLd9"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse a request. ``name`` is unique among those of its status."""

    name: str
    meaning: str
    problem: Problem

    @property
    def document(self) -> dict[str, Any]:
        """The body that a client gets."""
        document: dict[str, Any] = json.loads(problems.document(self.problem, REQUEST_ID))
        return document


_SAMPLES: Mapping[type[errors.DomainError], Callable[[], errors.DomainError]] = {
    errors.InvalidInput: lambda: errors.InvalidInput([Fault(("messages", 0, "content"), "must not be empty")]),
    errors.ScopeMissing: lambda: errors.ScopeMissing("sessions:write"),
    errors.TokenLimited: lambda: errors.TokenLimited("create sessions"),
    errors.HistoryKindUndeclared: lambda: errors.HistoryKindUndeclared("compacted"),
    errors.AgentGone: lambda: errors.AgentGone("demo"),
    errors.TurnAlreadyRunning: lambda: errors.TurnAlreadyRunning("sess_"),
    errors.TooManyWrongKeys: lambda: errors.TooManyWrongKeys(12),
    errors.SessionFull: lambda: errors.SessionFull(268_435_456),
    errors.QuotaExceeded: lambda: errors.QuotaExceeded(Quota.TURNS_PER_MINUTE, 60, 12, window=60),
}
"""Samples of errors that have arguments."""


def of(kind: type[errors.DomainError]) -> Refusal:
    """For an error of the core."""
    error = _SAMPLES.get(kind, kind)()
    problem = problems.problem_of(error)
    assert problem is not None, "every error of the core is in the table"
    return Refusal(kind.code, _first_paragraph(kind), problem)


def raised_by(name: str, meaning: str, check: Callable[[], object]) -> Refusal:
    """For the error that ``check`` raises."""
    try:
        check()
    except Exception as error:
        problem = problems.problem_of(error)
        if problem is None:
            raise
        return Refusal(name, meaning, problem)
    raise AssertionError(f"{name}: the check refused nothing")


def request_with(header: str, value: str) -> Request:
    """A request with one header."""
    request = HttpRequest()
    request.META[f"HTTP_{header.upper().replace('-', '_')}"] = value
    return Request(request)


def of_everything() -> list[Refusal]:
    """The refusals that any request may get."""
    return [
        Refusal("unknown_host", "The Host header does not name a host of this server.", problems.UNKNOWN_HOST),
        Refusal("no_key", "The request has no key.", problems.NO_KEY),
        of(errors.NotAuthenticated),
        of(errors.TooManyWrongKeys),
        Refusal("too_many_from_address", "The address has too many requests open.", problems.TOO_MANY_FROM_ADDRESS),
        of(errors.ScopeMissing),
        of(errors.OriginRefused),
        Refusal("failed", "The server failed. Its log has the reason under the request's id.", problems.FAILED),
        of(errors.NotReady),
        of(errors.AnswersFull),
    ]


def of_bodies() -> list[Refusal]:
    """The refusals of requests with a body."""
    other_type = UnsupportedMediaType("", detail="The body must be application/json.")
    return [
        raised_by("not_json", "The body is not JSON in UTF-8, or is missing.", lambda: parse_object(b"{")),
        Refusal("too_slow", "The body did not arrive in time.", problems.TOO_SLOW),
        Refusal(
            "too_large",
            "The body is larger than this server, or this key, may send.",
            problems.too_large(settings.AGENTHOST_MAX_BODY_BYTES),
        ),
        raised_by("other_content_type", "The body is not application/json.", lambda: _raise(other_type)),
        Refusal("encoded", "The body is compressed.", problems.ENCODED),
        of(errors.InvalidInput),
    ]


def _raise(error: Exception) -> None:
    raise error


def _first_paragraph(kind: type[errors.DomainError]) -> str:
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    assert text, "every error has a docstring"
    return text
