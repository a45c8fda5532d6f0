"""The ASGI application: the guards, and separate Django handlers for protocol requests, pages and health checks.

Protocol requests skip the middleware of pages (cookies, CSRF, messages). Each of them costs a thread switch,
together more than the rest of a request.
"""

from __future__ import annotations

import asyncio
import functools
import io
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import copy_context
from http import HTTPStatus
from typing import Any, cast
from weakref import WeakKeyDictionary

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.log import log_response

from agenthost import streaming
from agenthost.guard import HEALTH_PATHS, Guard, Message, Receive, Scope, Send, is_protocol, key_of, rendered
from agenthost.middleware import request_id
from agenthost.protocol_request import ProtocolRequest
from agenthost.websocket_guard import WebSocketGuard
from agents_app.fair.slots import FairSlots
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.aap.views import Streamed
from sessions_app.ahp import versions
from sessions_app.ahp.transport.consumer import Consumer
from sessions_app.core.base import byte_budget, database, log_context
from sessions_app.core.base.errors import DomainError, NotReady
from sessions_app.core.tenancy import admission

_PIECE = 65536
_PAGES_SHARE = 4
"""Pages may use one in this many database connections."""


class HealthHandler(ASGIHandler):
    """Django's ASGI handler for the asynchronous health views, without the middleware of pages."""

    _get_response_async: Callable[[HttpRequest], Any]

    def load_middleware(self, is_async: bool = False) -> None:
        assert is_async
        _without_middleware(self, self._get_response_async)


@functools.lru_cache(maxsize=32)
def _view_of(path: str) -> tuple[Callable[..., HttpResponseBase], list[str]]:
    """The view for a path, and the names of its arguments."""
    found = resolve(path)
    return found.func, list(found.kwargs)


class ProtocolHandler(BaseHandler):
    """Django's request cycle for protocol requests, whose views are synchronous, with one thread switch per request.

    Django's ASGIHandler starts a thread for each request and another one to end it, and switches threads for
    the signals around a request, which costs as much as a small request. So ``request_started`` and
    ``request_finished`` are not sent here. ``database.serve`` releases the connection, as Django does on them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._respond_to: Any = convert_exception_to_response(self._call_view)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        with byte_budget.answering(scope["agenthost"].get("owner")) as held:
            response = await self._admitted(scope, body)
            # Not kept while the response streams, possibly for hours.
            del body
            # A client may read as slowly as it likes (A100), so the total of unread responses is limited.
            if not held.hold(_buffered_bytes(response)):
                response = _problem_response(scope, problems.TOO_MANY_ANSWERS)
            if not isinstance(response, Streamed):
                await _send(response, send)
                return
            stream = response.stream
            try:
                await send(_start_of(response))
                # Not kept while the body is sent, possibly for hours.
                del response
                await streaming.send_body(stream, receive, send, scope)
            finally:
                await stream.end()

    async def _admitted(self, scope: Scope, body: bytes) -> HttpResponseBase:
        """The response; 503 if the tenant's share of threads stays busy for AGENTHOST_DATABASE_POOL_WAIT."""
        context, timeout = copy_context(), settings.AGENTHOST_DATABASE_POOL_WAIT
        owner = scope["agenthost"].get("owner", database.UNKNOWN)
        try:
            serve = database.serve_on_loop if _is_hot(scope, body) else database.serve
            response = await serve(owner, timeout, context, self._respond, scope, body)
        except TimeoutError:
            return _not_ready(scope)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            admission.forget(key_of(scope))
        log_context.adopt(context)
        return response

    def _respond(self, scope: Scope, body: bytes) -> HttpResponseBase:
        # The request may be kept longer, so the body is freed here.
        with io.BytesIO(body) as file:
            return self.get_response(ProtocolRequest(scope, file))

    def get_response(self, request: HttpRequest) -> HttpResponseBase:
        """As Django's, without middleware. Protocol views do not use ``reverse``, so it sets no URL configuration or prefix."""
        response: HttpResponseBase = self._respond_to(request)
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            log_response("%s: %s", response.reason_phrase, request.path, response=cast(Any, response), request=request)
        return response

    def _call_view(self, request: HttpRequest) -> HttpResponseBase:
        if (hot := _HOT.fullmatch(request.path_info)) is not None:
            # Resolving the path would take as long as the rest of this handler.
            sessions, session_id = hot.groups()
            view, names = _view_of(sessions if session_id is None else f"{sessions}/id/turns")
            return view(request, **dict.fromkeys(names, session_id))
        view, arguments, named = self.resolve_request(request)
        response: HttpResponseBase = view(request, *arguments, **named)
        return response


async def check_key(scope: Scope) -> Problem | None:
    """Find the tenant of a request's key before its body is read. This grants nothing: the view authenticates again."""
    key, timeout = key_of(scope), settings.AGENTHOST_DATABASE_POOL_WAIT
    if not key:
        return None
    try:
        tenant = await admission.tenant_of(key, scope["agenthost"]["address"], timeout)
        scope["agenthost"].update(owner=tenant, key_is_good=functools.partial(admission.is_good, key, tenant, timeout))
    except (DomainError, DatabaseError) as error:
        problem = problems.problem_of(error)
        if problem is None:
            raise
        return problem
    except TimeoutError:
        return problems.problem_of(NotReady())
    return None


_HOT = re.compile(r"(/aap/v[1-9]/sessions)(?:/([^/]+)/turns)?")
"""The paths whose ``POST`` creates a session or a turn."""
_LARGEST_ON_LOOP = 65536
"""Parsing a larger body would delay other requests."""


def _is_hot(scope: Scope, body: bytes) -> bool:
    """Whether the request creates a session or a turn: these are answered on the loop, on SQLite in the write thread."""
    return scope["method"] == "POST" and len(body) <= _LARGEST_ON_LOOP and _HOT.fullmatch(scope["path"]) is not None


def _buffered_bytes(response: HttpResponseBase) -> int:
    """Bytes in memory until the client has read the response; 0 if it is small or streamed."""
    size = 0 if response.streaming else len(cast(HttpResponse, response).content)
    return size if size > _PIECE else 0


def _not_ready(scope: Scope) -> HttpResponse:
    problem = problems.problem_of(NotReady())
    assert problem is not None
    return _problem_response(scope, problem)


def _problem_response(scope: Scope, problem: Problem) -> HttpResponse:
    content_type, content = rendered(problem, scope["path"], scope["agenthost"]["request_id"])
    return HttpResponse(content, status=problem.status, content_type=content_type, headers=dict(problem.headers))


def _without_middleware(handler: Any, view: Callable[[HttpRequest], Any]) -> None:
    """Use only the request_id middleware, whatever MIDDLEWARE contains."""
    handler._view_middleware = handler._template_response_middleware = handler._exception_middleware = []
    handler._middleware_chain = convert_exception_to_response(request_id(convert_exception_to_response(view)))


def _start_of(response: HttpResponseBase) -> Message:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
    return {"type": "http.response.start", "status": response.status_code, "headers": headers}


async def _send(response: HttpResponseBase, send: Send) -> None:
    whole = cast(HttpResponse, response).content
    start_message = _start_of(response)
    if not response.has_header("Content-Length"):
        # Without a length, the server would send the response in chunks.
        start_message["headers"].append((b"content-length", b"%d" % len(whole)))
    await send(start_message)
    if len(whole) <= _PIECE:
        await send({"type": "http.response.body", "body": whole, "more_body": False})
        return
    # In pieces, because the server copies everything that it is given at once, and keeps it until it is read.
    content = memoryview(whole)
    for start in range(0, len(content), _PIECE):
        end = start + _PIECE
        await send({"type": "http.response.body", "body": bytes(content[start:end]), "more_body": end < len(content)})


async def _body(receive: Receive) -> bytes | None:
    """The request's whole body, whose size the guard limits; None if the client disconnected."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return cast(bytes, message.get("body", b""))
    pieces = []
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
    return None


class PageHandler:
    """Django's ASGI handler for pages, with a limit on concurrent requests.

    Django starts a thread for each page, and each thread takes a database connection. Without a limit, sign-in requests
    from anybody could use up all connections, and the CPU for password checks. One address gets at most half of the slots.
    A request has no slot while its body arrives or its response is read, because a client may do both slowly.
    """

    def __init__(self) -> None:
        self._django = ASGIHandler()
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, FairSlots] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        address: str = scope["agenthost"]["address"]
        await admission.delay_page(address)
        async with AsyncExitStack() as held:
            try:
                slot = self._slots_of_loop().held(address, settings.AGENTHOST_DATABASE_POOL_WAIT)
                await held.enter_async_context(slot)
            except TimeoutError:
                await _send(_not_ready(scope), send)
                return

            async def release_and_send(message: Message) -> None:
                await held.aclose()
                await send(message)

            await self._django(cast(dict[str, Any], scope), cast(Any, _with_body(body, receive)), cast(Any, release_and_send))

    def _slots_of_loop(self) -> FairSlots:
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = FairSlots(max(1, settings.AGENTHOST_DATABASE_POOL_MAX // _PAGES_SHARE))
        return self._slots[loop]


def _with_body(body: bytes, receive: Receive) -> Receive:
    """``receive`` for an application whose request body is already read."""
    is_delivered = False

    async def receive_body() -> Message:
        nonlocal is_delivered
        if is_delivered:
            return await receive()
        is_delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body


class HttpRouter:
    """Chooses the handler of a request (protocol, health or pages) by its path."""

    def __init__(self) -> None:
        self._protocol, self._pages, self._health = ProtocolHandler(), PageHandler(), HealthHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if is_protocol(path):
            await self._protocol(scope, receive, send)
        elif path in HEALTH_PATHS:
            await self._health(cast(dict[str, Any], scope), receive, cast(Any, send))
        else:
            await self._pages(scope, receive, send)


async def lifespan(_scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI lifespan. Does nothing, because agenthost.processes starts and stops everything."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


application = ProtocolTypeRouter(
    {
        "http": Guard(HttpRouter(), check_key),
        "websocket": WebSocketGuard({"/ahp": Consumer.as_asgi(versions=versions.served())}),
        "lifespan": lifespan,
    }
)
