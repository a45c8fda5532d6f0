"""Errors as problem documents."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import InternalError, OperationalError
from django.http import Http404
from django.test import RequestFactory
from rest_framework import exceptions as rest

from sessions_app.aap import problems
from sessions_app.core.base import errors
from sessions_app.core.base.errors import Fault, InvalidInput


def _below(kind: type[errors.DomainError]) -> set[type[errors.DomainError]]:
    return {found for child in kind.__subclasses__() for found in {child, *_below(child)}}


@pytest.mark.rule("A6")
def test_every_domain_error_has_its_place_in_the_table() -> None:
    ours = {kind for kind in _below(errors.DomainError) if kind.__module__.startswith(("sessions_app.", "agents_app."))}
    assert ours == set(problems.TABLE)


def read_only() -> Exception:
    """What a write to a standby raises while a new primary is being chosen."""
    error = InternalError("cannot execute INSERT in a read-only transaction")
    error.__cause__ = psycopg.errors.ReadOnlySqlTransaction()
    return error


SAMPLES: list[tuple[Exception, int]] = [
    (InvalidInput([Fault(("messages",), "must not be empty")]), 422),
    (errors.NotAuthenticated(), 401),
    (errors.ScopeMissing("meta:read"), 403),
    (errors.TokenLimited("create sessions"), 403),
    (errors.OriginRefused(), 403),
    (errors.TokenNotFound(), 404),
    (errors.SessionNotFound(), 404),
    (errors.HistoryKindUndeclared("full"), 404),
    (errors.AgentGone("echo"), 422),
    (errors.TurnAlreadyRunning("sess_a"), 409),
    (errors.BadCursor(), 400),
    (errors.UnknownPosition(), 400),
    (errors.PositionPruned(), 410),
    (errors.NotReady(3), 503),
    (Http404(), 404),
    (rest.ParseError(), 400),
    (rest.UnsupportedMediaType("text/plain"), 415),
    (rest.MethodNotAllowed("PUT"), 405),
    (problems.BodyTooLarge(), 413),
    (SuspiciousOperation("too many fields"), 400),
    (OperationalError("connection to 10.0.0.1 refused"), 503),
    (read_only(), 503),
]


def answer(error: Exception) -> tuple[Any, dict[str, Any]]:
    problem = problems.problem_of(error)
    assert problem is not None
    request = RequestFactory().get("/")
    request.META["agenthost.request_id"] = "req_1"
    response = problems.response(problem, request)
    return response, json.loads(response.content)


@pytest.mark.rule("A6", "A122")
@pytest.mark.parametrize(("error", "status"), SAMPLES, ids=lambda value: type(value).__name__)
def test_a_problem_has_its_members_and_its_status_twice(error: Exception, status: int) -> None:
    response, body = answer(error)
    assert response.status_code == body["status"] == status
    assert response["Content-Type"] == "application/problem+json"
    assert body["type"] == "about:blank"
    assert body["title"] == problems.TITLES[status]
    assert body["detail"].endswith(".")
    assert body["instance"] == "req_1"
    assert ("errors" in body) == isinstance(error, InvalidInput)


@pytest.mark.rule("A2", "A6")
def test_a_refusal_has_the_headers_for_the_next_attempt() -> None:
    assert answer(errors.NotAuthenticated())[0]["WWW-Authenticate"] == "Bearer"
    assert answer(errors.NotReady(3))[0]["Retry-After"] == "3"
    assert answer(OperationalError("x"))[0]["Retry-After"].isdigit()


@pytest.mark.rule("A6")
def test_internal_errors_are_not_shown_to_clients() -> None:
    assert "10.0.0.1" not in answer(OperationalError("connection to 10.0.0.1 refused"))[0].content.decode()
    assert problems.problem_of(ValueError("boom")) is None


@pytest.mark.rule("A6")
@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ((), ""),
        (("messages", 0, "content"), "/messages/0/content"),
        (("agent", "options", "a/b~c"), "/agent/options/a~1b~0c"),
        (("agent", "options", ""), "/agent/options/"),
        (("a", "\0\ud83d"), "/a/\ufffd\ufffd"),
        (("agent", "options", "x" * 10_000), "/agent/options"),
    ],
)
def test_pointers_are_escaped_and_never_long(path: tuple[str | int, ...], pointer: str) -> None:
    assert problems.pointer(path) == pointer


@pytest.mark.rule("A6")
@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (InvalidInput([Fault(("messages", 0, "content"), "must not be empty")]), "messages[0].content: must not be empty."),
        (InvalidInput([Fault((), "is nested more than 100 levels deep")]), "The body is nested more than 100 levels deep."),
        (InvalidInput([Fault((), "must be an object")], "The body must be a JSON object."), "The body must be a JSON object."),
        (InvalidInput([Fault(("agent", "options", "n" * 1000), "is unknown")]), f"agent.options.{'n' * 64}: is unknown."),
        (InvalidInput([]), "The request is not valid."),
    ],
)
def test_the_detail_of_a_422_names_the_first_value_that_is_refused(error: InvalidInput, detail: str) -> None:
    assert answer(error)[1]["detail"] == detail


def test_a_body_with_ten_thousand_faults_gets_a_short_answer() -> None:
    faults = [Fault(("messages", index), "must be an object") for index in range(10_000)]
    assert len(answer(InvalidInput(faults))[1]["errors"]) == 100
