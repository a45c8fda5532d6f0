"""The endpoints of AAP: authenticate, find the session, parse, call the core, encode.

They work with version 3's documents; a dialect (dialect.py) converts those of an older version. Synchronous: the
database work is done and the connection is returned before a streaming body starts.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from agents_app import exact_json
from agents_app.spec import AgentSpec, HistoryKind, StreamMode
from sessions_app.aap import headers, json_form, positions, problems, ratelimit, sse
from sessions_app.aap.auth import KeyAuthentication, PublicMetaAuthentication
from sessions_app.aap.body import read_object
from sessions_app.aap.dialect import Dialect, Document
from sessions_app.aap.stream import Mode, RunEnd, SSEEncoder
from sessions_app.aap.versions import v3
from sessions_app.core import turns
from sessions_app.core.base import byte_budget, database, log_context, secret_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AgentGone, HistoryKindUndeclared, PositionPruned
from sessions_app.core.log import journal
from sessions_app.core.records import stored_messages
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.sessions import creating, deleting, listing
from sessions_app.core.tenancy import access, agents, api_audit, key_watch, quotas, usage_entries
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota
from sessions_app.core.turns import Accepted
from sessions_app.models import Session

_UNBUFFERED = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class JSONAlone(BaseRenderer):
    """DRF requires a renderer; the views write their own answers."""

    media_type = "application/json"
    format = "json"


_NO_NEGOTIATOR: Any = object()


class Endpoint(APIView):
    """Base of all endpoints. Key and scope are checked before anything else (A2)."""

    authentication_classes = [KeyAuthentication]
    permission_classes = []
    parser_classes = []
    renderer_classes = [JSONAlone]
    throttle_classes = []
    http_method_names = ["get", "head", "post", "delete"]
    scopes: ClassVar[Mapping[str, str]] = {
        "GET": "sessions:read",
        "HEAD": "sessions:read",
        "POST": "sessions:write",
        "DELETE": "sessions:write",
    }
    dialect: Dialect = Dialect()
    _is_converted = False
    _allow = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        methods = {name for name in cls.http_method_names if hasattr(cls, name)}
        if "get" in methods:
            methods.add("head")
        cls._allow = ", ".join(name.upper() for name in cls.http_method_names if name in methods)

    def dispatch(self, request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponseBase:
        """DRF's cycle. The steps without a use here are left out: negotiation, versions, throttles, permission classes.

        ``Accept`` is ignored (A8).
        """
        self.args, self.kwargs = arguments, named
        self.request = wrapped = self.initialize_request(request)
        try:
            self.perform_authentication(wrapped)
            self.check_permissions(wrapped)
            name = (request.method or "").lower()
            handler = getattr(self, name, None) if name in self.http_method_names else None
            answer: HttpResponseBase = (handler or self.http_method_not_allowed)(wrapped, *arguments, **named)
        except Exception as error:
            answer = self.handle_exception(error)
        answer["Allow"] = self._allow
        return answer

    def to_v3(self, body: Document) -> Document:
        """Convert the body to version 3. Faults found later are reported with paths of the client's version."""
        self._is_converted = True
        return self.dialect.to_v3(body)

    def initialize_request(self, request: HttpRequest, *_arguments: Any, **_named: Any) -> Request:
        made = Request(request, negotiator=_NO_NEGOTIATOR)
        # It contains the request itself, and only the garbage collector would free it. No parser needs it.
        made.parser_context.clear()
        # DRF finds these through Django's request on each use, in much more time.
        made.method, made.path, made.headers = request.method, request.path, request.headers
        return made

    def perform_authentication(self, request: Request) -> None:
        for authenticator in self.get_authenticators():
            request.user, request.auth = authenticator.authenticate(request)  # type: ignore[misc]  # ours only

    def check_permissions(self, request: Request) -> None:
        log_context.bind(tenant=caller_of(request).tenant)
        scope = self.scopes.get(request.method or "")
        if scope is not None:
            caller_of(request).require(scope)

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]  # problems are plain answers
        database.before_error_answer(exc)
        problem = problems.problem_of(exc)
        if problem is None:
            raise exc
        if self._is_converted and problem.faults:
            faults = tuple(replace(fault, path=self.dialect.fault_path(fault.path)) for fault in problem.faults)
            problem = replace(problem, faults=faults)
        return problems.response(problem, self.request)


class Meta(Endpoint):
    authentication_classes = [PublicMetaAuthentication]
    scopes = {"GET": "meta:read", "HEAD": "meta:read"}

    def get(self, request: Request) -> HttpResponse:
        return json_answer(self.dialect.meta(v3.meta(agents.visible(caller_of(request)))))


class SessionList(Endpoint):
    def get(self, request: Request) -> HttpResponse:
        return json_answer(self.dialect.sessions(v3.sessions(listing.page(caller_of(request), request.GET.get("after")))))


class Sessions(SessionList):
    def post(self, request: Request) -> HttpResponse:
        caller = caller_of(request)
        body = read_object(request, most=quotas.largest_request(caller))
        idempotency_key = headers.idempotency_key(request, body)
        parsed = v3.creation(self.to_v3(body), functools.partial(agents.for_creation, caller))
        session_id = creating.create(caller, parsed, idempotency_key=idempotency_key).public_id
        # Not exact_json, which takes longer: there are only texts.
        answer = _json(orjson.dumps(v3.created(session_id)), status=201)
        answer["Location"] = f"{request.path}/{session_id}"
        return answer


class OneSession(Endpoint):
    def get(self, request: Request, session_id: str) -> HttpResponse:
        return json_answer(self.dialect.session(session_document(session_of(caller_of(request), session_id))))

    def delete(self, request: Request, session_id: str) -> HttpResponse:
        caller = caller_of(request)
        deleting.delete(caller, session_of(caller, session_id))
        return no_content()


class History(Endpoint):
    def get(self, request: Request, session_id: str) -> HttpResponse:
        caller = caller_of(request)
        session = session_of(caller, session_id)
        return json_answer(history_document(caller, session, v3.history_kind(request.GET)))


class Turns(Endpoint):
    def post(self, request: Request, session_id: str) -> HttpResponseBase:
        caller = caller_of(request)
        session = session_of(caller, session_id)
        body = read_object(request, most=quotas.largest_request(caller))
        idempotency_key, deadline = headers.idempotency_key(request, body), headers.deadline(request)
        parsed = v3.turn(self.to_v3(body), session.agent_name, agents.for_turn(caller, session))
        with stream_slot(caller) as slot:
            if parsed.content is not None:
                accepted = turns.start(
                    caller,
                    session,
                    content=parsed.content,
                    overrides=parsed.overrides,
                    idempotency_key=idempotency_key,
                    deadline=deadline,
                )
            else:
                accepted = turns.answer(
                    caller,
                    session,
                    answers=parsed.answers,
                    overrides=parsed.overrides,
                    idempotency_key=idempotency_key,
                    deadline=deadline,
                )
            return answer_to_turn(slot, session, parsed.mode, accepted)


class EventStream(Endpoint):
    """Joining a stream (A120)."""

    def get(self, request: Request, session_id: str) -> HttpResponseBase:
        caller = caller_of(request)
        session = session_of(caller, session_id)
        mode = v3.joining_mode(request.GET, _spec_if_any(caller, session))
        api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
        with stream_slot(caller) as slot:
            return self._joined(request, slot, session, mode)

    def _joined(self, request: Request, slot: Slot, session: Session, mode: Mode) -> HttpResponseBase:
        follows = v3.follows(request.GET)
        position = request.headers.get("Last-Event-ID") or request.GET.get("after")
        # In this order, a run that begins meanwhile is either found here or has all its events after ``newest``.
        newest = journal.tail(session.pk).seq
        before_run = turns.position_before_run(session)
        starts = False
        if position is not None:
            keys = [positions.signing_key(key) for key in secret_keys.accepted()]
            after = positions.read(keys, session.public_id, position)
            if before_run is None and not follows:
                newest = journal.tail(session.pk).seq
                if not self._anything_to_show(session, mode, after):
                    return no_content()
            else:
                # Raises PositionPruned now, while the answer can still have its status.
                journal.read_session(session.tenant_id, session.pk, after, limit=1)
        elif before_run is not None:
            after, starts = before_run + 1, True
        elif follows:
            after = newest
        else:
            return no_content()
        if follows:
            end = RunEnd(None, inside=before_run is not None and after > before_run)
        elif before_run is None:
            end = RunEnd(newest)
        else:
            end = RunEnd(before_run + 1, inside=after > before_run)
        if request.method == "HEAD":
            return HttpResponse(content_type="text/event-stream", headers=_UNBUFFERED)
        return _events(slot, session, mode, after, end, starts=starts)

    @staticmethod
    def _anything_to_show(session: Session, mode: Mode, after: int) -> bool:
        encoder = _encoder(session, mode)
        more = True
        while more:
            read = journal.read_session(session.tenant_id, session.pk, after)
            if any(encoder.encode(event) for event in read.events):
                return True
            more = read.more
            after = read.events[-1].seq if read.events else after
        return False


class Cancel(Endpoint):
    def post(self, request: Request, session_id: str) -> HttpResponse:
        caller = caller_of(request)
        session = session_of(caller, session_id)
        # Checked as the rules demand; the reason itself is not stored.
        v3.cancel_reason(read_object(request, most=quotas.largest_request(caller), required=False))
        return json_answer(v3.cancelled(turns.cancel(caller, session)))


def caller_of(request: Request) -> Caller:
    caller = request.auth
    assert isinstance(caller, Caller), "every endpoint authenticates"
    return caller


def session_of(caller: Caller, session_id: str) -> Session:
    session = access.session(caller, session_id)
    log_context.bind(session=session.public_id)
    return session


def _spec_if_any(caller: Caller, session: Session) -> AgentSpec | None:
    """The agent as it is now; None if the operator removed it. Its sessions can still be read (A43)."""
    try:
        return agents.for_turn(caller, session)
    except AgentGone:
        return None


def session_document(session: Session) -> Document:
    return v3.session(listing.facts(session))


def history_document(caller: Caller, session: Session, kind: HistoryKind) -> Document:
    """HistoryKindUndeclared if the agent does not offer this kind now."""
    spec = _spec_if_any(caller, session)
    if spec is not None and kind not in spec.history:
        raise HistoryKindUndeclared(kind)
    byte_budget.reserve(usage_entries.bytes_of_session(session))
    api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    return v3.history(kind, stored_messages.read(session, kind))


def stream_slot(caller: Caller) -> AbstractContextManager[Slot]:
    """One of the caller's open streams. Taken before anything is stored for the request."""
    return key_watch.slot(Quota.STREAMS_AT_ONCE, caller)


def answer_to_turn(
    slot: Slot,
    session: Session,
    mode: StreamMode,
    accepted: Accepted,
    *,
    document: Callable[[str, Sequence[Line]], Document] = v3.turn_answer,
    first: tuple[bytes, Document] | None = None,
) -> Streamed:
    """The answer to an accepted turn, in the requested form.

    ``document`` builds the object of the JSON form; ``first`` is an event before the stream's ``turn_start``.
    """
    log_context.bind(turn=accepted.public_id)
    if mode == "none":
        body = json_form.body(slot.keep(), session.pk, accepted, document, settings.AGENTHOST_KEEPALIVE_SECONDS)
        answer = streaming(slot, body, "application/json")
    else:
        if accepted.repeated:
            _require_events(session, accepted.start)
        end = RunEnd(accepted.start, inside=True)
        answer = _events(slot, session, mode, accepted.start, end, starts=True, first=first)
    # A client of the other protocol may have chosen the id.
    answer["X-Turn-Id"] = quote(accepted.public_id, safe="")
    for name, value in ratelimit.of_standings(accepted.standings).items():
        answer[name] = value
    return answer


def _require_events(session: Session, start: int) -> None:
    """Raise PositionPruned now, while the answer can still have its status, if a run's events were deleted."""
    if not start:
        raise PositionPruned
    journal.read_session(session.tenant_id, session.pk, start, limit=1)


def _signing_key() -> bytes:
    return positions.signing_key(secret_keys.newest())


def _encoder(session: Session, mode: Mode) -> SSEEncoder:
    return SSEEncoder(mode, functools.partial(positions.write, _signing_key(), session.public_id))


def _events(
    slot: Slot,
    session: Session,
    mode: Mode,
    after: int,
    end: RunEnd,
    *,
    starts: bool,
    first: tuple[bytes, Document] | None = None,
) -> Streamed:
    """``starts``: the event at ``after`` is the run's ``turn_start`` and is sent first, or right after ``first``."""
    encoder = _encoder(session, mode)
    opening = encoder.opening(after) if starts else b""
    if first is not None:
        # It has the position before the turn's start, so a client that joins after it gets the whole turn.
        name, data = first
        opening = encoder.framed(after - 1, name, exact_json.dumps(data).encode()) + opening
    body = sse.body(slot.keep(), session.pk, after, encoder, end, settings.AGENTHOST_KEEPALIVE_SECONDS, opening)
    return streaming(slot, body, "text/event-stream")


class Stream:
    """A body that is produced after its view has returned, until the last event or the client's end."""

    __slots__ = ("_slot", "body")

    def __init__(self, slot: Slot, body: AsyncGenerator[bytes]) -> None:
        self._slot = slot
        self.body = body

    def on_key_end(self, call: Callable[[], None]) -> None:
        """Call ``call``, in the event loop, when the caller's key has ended. The body then ends at the client's next read."""
        self._slot.on_end = call

    def write_with(self, write: Callable[[bytes], bool]) -> None:
        """Let the body send chunks with ``write``, without its task, wherever that returns True."""
        self._slot.write = write

    async def end(self) -> None:
        """End the body at once. Closing its wrapper only drops a reference, and garbage collection may come late."""
        await self.body.aclose()


class Streamed(StreamingHttpResponse):
    """An answer whose body is a stream. The server keeps ``stream`` alone: status, headers and request are not needed longer."""

    def __init__(self, slot: Slot, body: AsyncGenerator[bytes], content_type: str) -> None:
        super().__init__(body, content_type=content_type, headers=_UNBUFFERED)
        self.stream = Stream(slot, body)


def streaming(slot: Slot, body: AsyncGenerator[bytes], content_type: str) -> Streamed:
    database.release()
    return Streamed(slot, body, content_type)


def json_answer(value: Document, status: int = 200) -> HttpResponse:
    return _json(exact_json.dumps(value).encode(), status)


def _json(content: bytes, status: int) -> HttpResponse:
    return HttpResponse(content, status=status, content_type="application/json", headers=_UNBUFFERED)


def no_content() -> HttpResponse:
    answer = HttpResponse(status=204)
    del answer["Content-Type"]
    return answer
