"""What is behind which kind of connection: the guard, and Django once for programs and once for people.

Programs' requests pass through no page's middleware: cookies, CSRF, messages. Each of those costs a
change of threads, together more than the rest of a request.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from weakref import WeakKeyDictionary

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from agenthost.guard import DROP, HEALTH_PATHS, Guard, Message, Receive, Scope, Send, is_protocol, shown_key, told
from agenthost.middleware import known_request
from agenthost.websocket_guard import SocketGuard
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
"""Pages have one in so many connections to the database."""
_UNREAD_SECONDS = 0.5
"""How long the end of an answer may wait for a client that reads nothing, once the client's key has ended."""


class HealthHandler(ASGIHandler):
    """Django's own handler for the views that are asynchronous, without the middleware for people."""

    _get_response_async: Callable[[HttpRequest], Any]

    def load_middleware(self, is_async: bool = False) -> None:
        assert is_async
        _without_middleware(self, self._get_response_async)


class ProtocolHandler(BaseHandler):
    """Django's request cycle for programs, whose views are synchronous, with one change of threads a request.

    Django's own handler for ASGI makes a thread for each request and another to end it, and changes
    threads for the signals around a request: as much work as a small request itself. So no
    ``request_started`` and ``request_finished`` are sent here; what Django does on them, giving the
    connection back, is done by ``database.serve``.
    """

    _get_response: Callable[[HttpRequest], HttpResponseBase]

    def __init__(self) -> None:
        super().__init__()
        _without_middleware(self, self._get_response)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        with byte_budget.answering(scope["agenthost"].get("owner")) as held:
            response = await self._admitted(scope, body)
            # An answer may stream for hours.
            del body
            # A client may read as slowly as it likes (A100), so what waits for it is bounded.
            if not held.hold(_held_by(response)):
                response = _told(scope, problems.TOO_MANY_ANSWERS)
            try:
                await _send(response, receive, send, scope)
            finally:
                if isinstance(response, Streamed):
                    await response.end()

    async def _admitted(self, scope: Scope, body: bytes) -> HttpResponseBase:
        """The response; 503 if there was no thread of its tenant's share for as long as a request waits for a connection."""
        context, patience = copy_context(), settings.AGENTHOST_DATABASE_POOL_WAIT
        owner = scope["agenthost"].get("owner", database.UNKNOWN)
        try:
            response = await database.serve(owner, patience, context, self._respond, scope, body)
        except TimeoutError:
            return _not_ready(scope)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            admission.forget(shown_key(scope))
        log_context.adopt(context)
        return response

    def _respond(self, scope: Scope, body: bytes) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(cast(Any, scope)))
        # The response keeps its request, so the body is freed here.
        with io.BytesIO(body) as file:
            return self.get_response(ASGIRequest(cast(Any, scope), file))


async def judge(scope: Scope) -> Problem | None:
    """Find the tenant of a request's key, before its body is read. The view authenticates again: nothing is allowed here."""
    key, patience = shown_key(scope), settings.AGENTHOST_DATABASE_POOL_WAIT
    if not key:
        return None
    try:
        tenant = await admission.tenant_of(key, scope["agenthost"]["address"], patience)
        scope["agenthost"].update(owner=tenant, key_is_good=partial(admission.is_good, key, tenant, patience))
    except (DomainError, DatabaseError) as error:
        problem = problems.problem_of(error)
        if problem is None:
            raise
        return problem
    except TimeoutError:
        return problems.problem_of(NotReady())
    return None


def _held_by(response: HttpResponseBase) -> int:
    """How many bytes are held until the client has read the response; 0 if it is small, or made while it is read."""
    size = 0 if response.streaming else len(cast(HttpResponse, response).content)
    return size if size > _PIECE else 0


def _not_ready(scope: Scope) -> HttpResponse:
    problem = problems.problem_of(NotReady())
    assert problem is not None
    return _told(scope, problem)


def _told(scope: Scope, problem: Problem) -> HttpResponse:
    content_type, content = told(problem, scope["path"], scope["agenthost"]["request_id"])
    return HttpResponse(content, status=problem.status, content_type=content_type, headers=dict(problem.headers))


def _without_middleware(handler: Any, view: Callable[[HttpRequest], Any]) -> None:
    """The one middleware that programs need, whatever MIDDLEWARE says for people."""
    handler._view_middleware = handler._template_response_middleware = handler._exception_middleware = []
    handler._middleware_chain = convert_exception_to_response(known_request(convert_exception_to_response(view)))


async def _send(response: HttpResponseBase, receive: Receive, send: Send, scope: Scope) -> None:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    if isinstance(response, StreamingHttpResponse):
        await _stream(response, receive, send, scope)
    else:
        # In pieces: what the server is given at once it copies, and keeps until it is read.
        content = memoryview(cast(HttpResponse, response).content)
        for start in range(0, max(1, len(content)), _PIECE):
            end = start + _PIECE
            await send({"type": "http.response.body", "body": bytes(content[start:end]), "more_body": end < len(content)})


async def _body(receive: Receive) -> bytes | None:
    """The request's whole body, which the guard has bounded; None if the client went away."""
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


async def _stream(response: StreamingHttpResponse, receive: Receive, send: Send, scope: Scope) -> None:
    """Sends the body as it comes, until its end or the client's."""

    async def sending() -> None:
        async with aclosing(aiter(cast(Any, response))) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(gone()), asyncio.create_task(sending())]
    try:
        with _dropped_when_overdue(response, scope):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not tasks[1].cancelled():
        tasks[1].result()


@contextmanager
def _dropped_when_overdue(response: StreamingHttpResponse, scope: Scope) -> Iterator[None]:
    """Drop the client within the block if its key ends and it does not read the end of its answer."""
    if not isinstance(response, Streamed) or DROP not in scope.get("extensions", {}):
        yield
        return
    drop, loop = scope["extensions"][DROP]["call"], asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    response.on_key_end(lambda: timers.append(loop.call_later(_UNREAD_SECONDS, drop)))
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


class PageHandler:
    """Django's own handler for pages, which serves a few at a time.

    Django starts a thread for each page, and the thread takes a connection to the database. Without a limit, sign-ins sent
    by anybody take all connections, and the processor for checking passwords. One address has at most half of the slots.
    No slot is held while a body arrives or an answer is read, because a client may do both slowly.
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
                await _send(_not_ready(scope), receive, send, scope)
                return

            async def sending(message: Message) -> None:
                await held.aclose()
                await send(message)

            await self._django(cast(dict[str, Any], scope), cast(Any, _with_body(body, receive)), cast(Any, sending))

    def _slots_of_loop(self) -> FairSlots:
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = FairSlots(max(1, settings.AGENTHOST_DATABASE_POOL_MAX // _PAGES_SHARE))
        return self._slots[loop]


def _with_body(body: bytes, receive: Receive) -> Receive:
    """``receive`` for an application whose request body was read before."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


class ByAudience:
    """Sends a request to the handler for programs or to the one for people, by its path."""

    def __init__(self) -> None:
        self._programs, self._people, self._health = ProtocolHandler(), PageHandler(), HealthHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if is_protocol(path):
            await self._programs(scope, receive, send)
        elif path in HEALTH_PATHS:
            await self._health(cast(dict[str, Any], scope), receive, cast(Any, send))
        else:
            await self._people(scope, receive, send)


async def live(_scope: Scope, receive: Receive, send: Send) -> None:
    """The server's start and end. What must start or stop is started and stopped by agenthost.processes."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


application = ProtocolTypeRouter(
    {
        "http": Guard(ByAudience(), judge),
        "websocket": SocketGuard({"/ahp": Consumer.as_asgi(versions=versions.served())}),
        "lifespan": live,
    }
)
