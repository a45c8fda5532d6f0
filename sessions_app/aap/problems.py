"""Problem documents: the one table from errors to statuses (A6).

Every error of this protocol is answered through this module. A problem names the fault and its place in the body, never
a secret's value, a whole body or internals of the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as rest

from agents_app import exact_json
from sessions_app.aap import ratelimit
from sessions_app.core.base import database, errors, redaction
from sessions_app.core.base.content import MOST_FAULTS, UNSTORABLE
from sessions_app.core.base.shapes import Named, Rule
from sessions_app.core.tenancy.quotas import Quota

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"

TITLES: Mapping[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

_LONGEST_NAME = 200


class _Fault(TypedDict):
    pointer: Annotated[str, "Into the request's body.", Rule(format="json-pointer")]
    detail: str


class _Document(TypedDict):
    """A refusal, as RFC 9457 defines it."""

    type: Annotated[Literal["about:blank"], "Always this: the status is the kind of the problem."]
    title: Annotated[str, Rule(enum=sorted(set(TITLES.values())))]
    status: Annotated[int, Rule(enum=sorted(TITLES))]
    detail: Annotated[str, "The reason, for people."]
    instance: Annotated[str, "The request's id, as in X-Request-Id."]
    errors: NotRequired[Annotated[list[_Fault], "The faults of the body: each place and its fault."]]


ProblemDocument = Annotated[_Document, Named("Problem")]


class BodyTooLarge(rest.APIException):
    """A body over the limit (A93)."""

    status_code = 413
    default_detail = "The body is too large."

    def __init__(self, most: int | None = None) -> None:
        super().__init__(None if most is None else f"The body is too large: this key may send at most {most} bytes.")


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal. ``faults``: the faults of the body."""

    status: int
    detail: str
    faults: tuple[errors.Fault, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


# --- the table ---


def _invalid_input(error: errors.InvalidInput) -> Problem:
    if not error.faults or error.detail != error.faults[0].detail:
        return Problem(422, _sentence(error.detail), error.faults)
    first = error.faults[0]
    detail = f"{first.place()}: {first.detail}" if first.path else f"The body {first.detail}"
    return Problem(422, _ended(detail), error.faults)


def _not_authenticated(_error: errors.NotAuthenticated) -> Problem:
    return Problem(401, "The key is not valid.", headers={"WWW-Authenticate": "Bearer"})


def _scope_missing(error: errors.ScopeMissing) -> Problem:
    return Problem(403, _sentence(f"this key lacks the scope {error.scope}" + (f": {error.because}" if error.because else "")))


def _history_kind_undeclared(error: errors.HistoryKindUndeclared) -> Problem:
    return Problem(404, f"This agent does not offer {error.kind} history.")


def _agent_gone(error: errors.AgentGone) -> Problem:
    return Problem(422, f"The agent {error.agent} is no longer available. This session can be read, but not continued.")


_QUOTAS: Mapping[str, str] = {
    Quota.TURNS_AT_ONCE: "simultaneous turns",
    Quota.TURNS_PER_MINUTE: "turns per minute",
    Quota.TOKENS_PER_DAY: "tokens per day",
    Quota.SESSIONS: "sessions",
    Quota.STORED_BYTES: "stored bytes",
    Quota.STREAMS_AT_ONCE: "open streams",
    Quota.CONNECTIONS_AT_ONCE: "open connections",
}


def _quota_exceeded(error: errors.QuotaExceeded) -> Problem:
    detail = f"This {'key' if error.of_key else 'tenant'} has reached its limit of {error.limit} {_QUOTAS[error.quota]}."
    return Problem(429, detail, headers=ratelimit.of_refusal(error))


def _too_many_wrong_keys(error: errors.TooManyWrongKeys) -> Problem:
    return Problem(429, _sentence(str(error)), headers={"Retry-After": str(error.retry_after)})


def _not_ready(error: errors.NotReady) -> Problem:
    return Problem(503, "The server cannot handle this request right now.", headers={"Retry-After": str(error.retry_after)})


def _answers_full(_error: errors.AnswersFull) -> Problem:
    return TOO_MANY_ANSWERS


def _always(status: int, detail: str) -> Callable[[Any], Problem]:
    return lambda _error: Problem(status, detail)


TABLE: Mapping[type[errors.DomainError], Callable[[Any], Problem]] = {
    errors.InvalidInput: _invalid_input,
    errors.NotAuthenticated: _not_authenticated,
    errors.ScopeMissing: _scope_missing,
    errors.RightMissing: lambda error: Problem(403, _sentence(str(error))),
    errors.ReasonNeeded: _always(422, "This server demands a reason for reading a transcript."),
    errors.TenantNotFound: _always(404, "There is no such tenant."),
    errors.MemberNotFound: _always(404, "There is no such member."),
    errors.InvitationUnusable: _always(404, "There is no such invitation."),
    errors.TokenLimited: lambda error: Problem(403, _sentence(str(error))),
    errors.OriginRefused: lambda error: Problem(403, _sentence(str(error))),
    errors.TokenNotFound: _always(404, "There is no such token."),
    errors.KeyNotFound: _always(404, "There is no such key."),
    errors.WebhookNotFound: _always(404, "There is no such webhook or delivery."),
    errors.SessionNotFound: _always(404, "There is no such session."),
    errors.HistoryKindUndeclared: _history_kind_undeclared,
    errors.AgentGone: _agent_gone,
    errors.SessionFull: lambda error: Problem(422, _sentence(str(error))),
    errors.TurnAlreadyRunning: _always(409, "A turn is already running in this session."),
    errors.AgentUnknown: _always(422, "There is no agent with this name."),
    errors.AddressTaken: _always(409, "A session with this URI exists."),
    errors.TurnUnknown: _always(404, "There is no such turn."),
    errors.NotPossible: lambda error: Problem(409, _sentence(error.reason)),
    errors.DispatchedBefore: _always(409, "This action was already handled."),
    errors.IdempotencyKeyReused: _always(422, "This Idempotency-Key was already used with another body."),
    errors.QuotaExceeded: _quota_exceeded,
    errors.BadCursor: _always(400, "The cursor in `after` was not made by this server."),
    errors.UnknownPosition: _always(400, "Unknown stream position: it is not one of this session's."),
    errors.PositionPruned: _always(
        410, "The events after this position are no longer stored. Read the session's history instead."
    ),
    errors.TooManyWrongKeys: _too_many_wrong_keys,
    errors.AccessDenied: _always(403, "The operator's rules of access do not permit this."),
    errors.AccessNeeded: _always(403, "Access to this has to be requested first."),
    errors.PathOutside: _always(403, "This is in no workspace that this key may use."),
    errors.PathNotFound: _always(404, "There is no such file or directory."),
    errors.PathTaken: _always(409, "A file or directory with this name exists."),
    errors.FileChanged: _always(409, "The file was changed since."),
    errors.ContentNotFound: _always(404, "There is no such content."),
    errors.WorkspaceFull: lambda error: Problem(422, _sentence(str(error))),
    errors.WorkspacesOff: _always(403, "This server has no workspaces."),
    errors.WatchesOff: _always(403, "This server cannot watch files."),
    errors.FilesAway: _not_ready,
    errors.TemplateUnusable: lambda error: Problem(503, _sentence(str(error))),
    errors.TerminalNotFound: _always(404, "There is no such terminal."),
    errors.TerminalTaken: _always(409, "A terminal or session with this URI exists."),
    errors.TerminalsUnavailable: lambda error: Problem(503, _sentence(error.reason)),
    errors.NotReady: _not_ready,
    errors.AnswersFull: _answers_full,
}


def problem_of(error: Exception) -> Problem | None:
    """The refusal for an error; None if the error is not meant for clients."""
    if isinstance(error, errors.DomainError):
        return next(TABLE[kind](error) for kind in type(error).__mro__ if kind in TABLE)
    if database.is_away(error):
        log.warning("request_without_database error=%s", redaction.kinds(error))
        return _not_ready(errors.NotReady())
    if isinstance(error, Http404 | rest.NotFound):
        return NOTHING_HERE
    if isinstance(error, RequestDataTooBig):
        return Problem(413, BodyTooLarge.default_detail)
    if isinstance(error, SuspiciousOperation):
        return Problem(400, "The request is malformed.")
    if isinstance(error, rest.APIException):
        return Problem(error.status_code, _sentence(str(error.detail)))
    return None


# --- what is refused before any view is asked ---

NO_KEY = Problem(401, "A key is required: send the header `Authorization: Bearer KEY`.", headers={"WWW-Authenticate": "Bearer"})
MALFORMED_KEY = Problem(401, "The key is not valid.", headers={"WWW-Authenticate": "Bearer"})
ENCODED = Problem(415, "The body is compressed (Content-Encoding). Send it uncompressed.")
TOO_SLOW = Problem(408, "The body did not arrive in time.")
NOTHING_HERE = Problem(404, "There is nothing at this address.")
TOO_MANY_FROM_ADDRESS = Problem(429, "This address has too many requests or connections open.", headers={"Retry-After": "5"})
TOO_MANY_BODIES = Problem(503, "The server has reached its limit for request bodies in memory.", headers={"Retry-After": "2"})
TOO_MANY_ANSWERS = Problem(
    503,
    "Answers to this tenant that were not read yet have reached the server's limit in bytes. Read them first.",
    headers={"Retry-After": "2"},
)
NOT_WEBSOCKET = Problem(
    426,
    "This address speaks WebSocket. A proxy in front of the server must pass on the headers Upgrade and Connection.",
    headers={"Upgrade": "websocket", "Connection": "Upgrade"},
)
UNKNOWN_HOST = Problem(400, "The Host header does not name a host of this server.")
FAILED = Problem(500, "The server failed to answer. Its log has the reason under the id in X-Request-Id.")


def too_large(most: int) -> Problem:
    return Problem(413, f"The body is larger than {most} bytes, the limit of this server.")


# --- from a problem to an answer ---


def pointer(path: Iterable[str | int]) -> str:
    """RFC 6901. Ends before a name of more than 200 characters."""
    steps = []
    for step in path:
        text = UNSTORABLE.sub("\ufffd", str(step))
        if len(text) > _LONGEST_NAME:
            break
        steps.append("/" + text.replace("~", "~0").replace("/", "~1"))
    return "".join(steps)


def document(problem: Problem, request_id: str) -> bytes:
    """The answer's body."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "detail": problem.detail,
    }
    if request_id:
        body["instance"] = request_id
    if problem.faults:
        body["errors"] = [{"pointer": pointer(fault.path), "detail": fault.detail} for fault in problem.faults[:MOST_FAULTS]]
    return UNSTORABLE.sub("\ufffd", exact_json.dumps(body)).encode()


def response(problem: Problem, request: HttpRequest) -> HttpResponse:
    return HttpResponse(
        document(problem, request.META.get("agenthost.request_id", "")),
        status=problem.status,
        content_type=CONTENT_TYPE,
        headers=dict(problem.headers),
    )


def _sentence(text: str) -> str:
    return _ended(text[:1].upper() + text[1:])


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


@csrf_exempt
def not_found(request: HttpRequest) -> HttpResponse:
    """Any other address below /aap."""
    return response(NOTHING_HERE, request)
