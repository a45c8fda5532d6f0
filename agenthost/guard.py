"""ASGI layer before Django: checks a request before its body is read.

Django reads the whole body before a view runs. So requests with no key, a wrong key, or a body that is too large or
too slow are refused here, in the protocol's error format. Headers of every response (A95, A122) are added here too,
because Django's own error responses and streams need them as well.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agenthost import cors
from agenthost.cors import Headers
from agenthost.edge import bodies, proxies
from agenthost.metrics import requests as metrics_of_requests
from agenthost.observability import log_cheaply
from agenthost.tracing import requests as traces_of_requests
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.core.base import client_address, log_context
from sessions_app.core.tenancy import admission
from sessions_app.core.tenancy.credentials import looks_valid

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
KeyCheck = Callable[[Scope], Awaitable[Problem | None]]

log = logging.getLogger(__name__)
access_log = logging.getLogger("agenthost.access")

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
WEBSOCKET_PATHS = frozenset({"/ahp"})
WAIT_FOR_READER = "agenthost.wait_for_reader"
"""ASGI extension: the server drops clients that read nothing, unless this is called, for clients with a valid key.

The argument is ``async () -> bool``, which checks whether the key is still valid, or None.
"""
DISCONNECT = "agenthost.disconnect"
"""ASGI extension: the argument is called once if the client disconnects before the response is complete.

A task that waits for ``http.disconnect`` would take more memory than the rest of an idle stream.
"""
HAS_BODY = "agenthost.has_body"
"""ASGI extension: returns whether ``receive`` returns at once, so that it needs no time limit."""
WRITE = "agenthost.write"
"""ASGI extension: sends a chunk of a response's body at once, without a task, or returns False if it has to be sent as usual.

Only for a response whose body is being sent and has not ended, and between two chunks that are sent as usual.
"""
DROP = "agenthost.drop"
"""ASGI extension: ends the connection at once, even if the client has not read the whole response."""
LINGER_SECONDS = 5.0
PAGE_BODY_BYTES = 256 * 1024
"""The largest request body for pages. They include the sign-in form, which needs no key."""
_UNAUTHENTICATED_DISCARD_BYTES = 1024 * 1024
"""How much of a body is read and discarded when its key is refused."""

_LONGEST_HOST = 300
"""A name has at most 253 characters, and a port six more."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_META_PATH = re.compile(r"/aap/v\d+/meta")


def is_request_id(value: str) -> bool:
    return _REQUEST_ID.fullmatch(value) is not None


def request_id_of(scope: Scope) -> str:
    """The client's X-Request-Id if it is well-formed, else a new id."""
    sent = _one(scope, b"x-request-id") or ""
    return sent if is_request_id(sent) else new_request_id()


def new_request_id() -> str:
    # Not secret: ``secrets`` would ask the kernel each time. ``random`` begins anew in a forked process.
    return f"req_{base64.urlsafe_b64encode(random.randbytes(15)).decode()}"  # noqa: S311


def rendered(refusal: Problem, path: str, request_id: str) -> tuple[str, bytes]:
    """Content type and body: a problem document for the protocols' paths (A6), plain text for pages."""
    if is_protocol(path) or path in WEBSOCKET_PATHS:
        return problems.CONTENT_TYPE, problems.document(refusal, request_id)
    return "text/plain; charset=utf-8", f"{refusal.detail}\n".encode()


def is_protocol(path: str) -> bool:
    return path.startswith(("/aap/", "/api/")) or path in ("/aap", "/api")


class Guard:
    """Wraps an ASGI application for HTTP requests.

    ``check_key`` checks the key of a protocol request before its body is read. Without it, only the key's form is checked.
    """

    def __init__(self, application: Application, check_key: KeyCheck | None = None) -> None:
        self._application, self._check_key = application, check_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = request_id_of(scope)
        address = proxies.client_of(scope)
        scope["agenthost"] = {"request_id": request_id, "address": address}
        client_address.current.set(address)
        log_context.bind(request=request_id)
        most = settings.AGENTHOST_MAX_BODY_BYTES if is_protocol(scope["path"]) else PAGE_BODY_BYTES
        has_arrived = scope["extensions"][HAS_BODY]["call"] if HAS_BODY in scope.get("extensions", ()) else lambda: False
        body = _Body(receive, most, has_arrived)
        answer = _Answer(send, _common_headers(scope, request_id), scope["method"], body.release)
        started = time.monotonic()
        span = traces_of_requests.begin(scope, request_id)
        try:
            with proxies.counted(scope) as admitted:
                await self._answer(scope, request_id, answer, body, admitted=admitted)
        finally:
            body.release()
            if scope["path"] not in HEALTH_PATHS:
                metrics_of_requests.answered(scope["path"], answer.status, answer.answered_at - started)
                # Without the query string, which may contain a token.
                milliseconds = (time.monotonic() - started) * 1000
                log_cheaply(access_log, "%s %s %d %.0f ms", scope["method"], scope["path"], answer.status, milliseconds)
                traces_of_requests.end(span, answer.status)

    async def _answer(self, scope: Scope, request_id: str, answer: _Answer, body: _Body, *, admitted: bool) -> None:
        refusal = _refusal(scope) if admitted else problems.TOO_MANY_FROM_ADDRESS
        address = scope["agenthost"]["address"]
        if refusal is not None or scope["method"] == "OPTIONS":
            await admission.delay_refusal(address)
        elif scope["path"] in HEALTH_PATHS:
            await admission.delay_health(address)
        if refusal is None and scope["method"] == "OPTIONS":
            await answer.send_whole(204, cors.preflight_headers(scope["path"], _one(scope, b"origin")), b"")
            return
        if refusal is None:
            try:
                refusal = await self._serve(scope, body, answer)
            except Exception:
                if answer.status:
                    raise
                log.exception("request_failed")
                refusal = problems.FAILED
            if refusal is not None and refusal.status == HTTPStatus.UNAUTHORIZED:
                await admission.delay_refusal(address)
        if refusal is not None:
            await _refuse(refusal, scope, request_id, answer, body)

    async def _serve(self, scope: Scope, body: _Body, answer: _Answer) -> Problem | None:
        if self._check_key is not None and is_protocol(scope["path"]):
            refusal = await self._check_key(scope)
            if refusal is not None:
                return refusal
            if "owner" in scope["agenthost"] and WAIT_FOR_READER in scope.get("extensions", {}):
                scope["extensions"][WAIT_FOR_READER]["call"](scope["agenthost"].get("key_is_good"))
        body.set_owner(scope["agenthost"].get("owner"))
        refusal = _body_refusal(scope, body.most)
        if refusal is not None:
            return refusal
        await self._application(scope, body, answer)
        # If the body was refused while it arrived, the application received a disconnect instead.
        return None if answer.status else body.refusal


class _Body:
    """Receives a request body with limits on its size and time.

    To refuse a body, it reports http.disconnect to the application, which makes any ASGI application stop reading.
    """

    def __init__(self, receive: Receive, most: int, has_arrived: Callable[[], bool]) -> None:
        self._receive, self._has_arrived = receive, has_arrived
        self.most = most
        self._discard_limit = min(2 * most, _UNAUTHENTICATED_DISCARD_BYTES)
        self._deadline = time.monotonic() + settings.AGENTHOST_BODY_SECONDS
        self._received = 0
        self._owner: Hashable = None
        self._counted = 0
        self.complete = False
        self.refusal: Problem | None = None

    async def __call__(self) -> Message:
        if self.refusal is not None:
            return {"type": "http.disconnect"}
        if self.complete:
            return await self._receive()
        try:
            message = await (self._receive() if self._has_arrived() else self._receive_in_time())
        except TimeoutError:
            self.refusal = problems.TOO_SLOW
            return {"type": "http.disconnect"}
        if message["type"] != "http.request":
            self.complete = True
            return message
        size = len(message.get("body", b""))
        self._received += size
        self.complete = not message.get("more_body", False)
        if self._received > self.most:
            self.refusal = problems.too_large(self.most)
        elif not bodies.BUDGET.take(self._owner, size):
            self.refusal = problems.TOO_MANY_BODIES
        else:
            self._counted += size
            return message
        return {"type": "http.disconnect"}

    async def _receive_in_time(self) -> Message:
        async with asyncio.timeout(self._deadline - time.monotonic()):
            return await self._receive()

    def set_owner(self, owner: Hashable) -> None:
        """Count the body for this tenant. If it is refused, more of it is discarded, so that the client reads the response."""
        self._owner = owner
        self._discard_limit = 2 * self.most

    def release(self) -> None:
        """Stop counting the body, because the response has started or the request is over."""
        bodies.BUDGET.give_back(self._owner, self._counted)
        self._counted = 0

    async def discard(self) -> None:
        """Read and drop the rest of the body, within limits of time and size.

        Closing while the client still sends would reset the connection before the client has read the response.
        """
        left = self._discard_limit
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.complete and left > 0:
                    message = await self._receive()
                    self.complete = message["type"] != "http.request" or not message.get("more_body", False)
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass


class _Answer:
    """Sends the response with the headers of every response. Calls ``on_start`` when the response starts."""

    def __init__(self, send: Send, headers: Headers, method: str, on_start: Callable[[], object]) -> None:
        self._send, self._headers, self._method, self._on_start = send, headers, method, on_start
        # The application's own Vary is kept as well; of other headers only ours.
        self._names = {name for name, _value in headers} - {b"vary"}
        self.status, self.answered_at = 0, 0.0
        """0 until the response has started."""

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status, self.answered_at = message["status"], time.monotonic()
            self._on_start()
            own = [(name, value) for name, value in message.get("headers", ()) if bytes(name).lower() not in self._names]
            message = {**message, "headers": [*own, *self._headers]}
        return self._send(message)

    async def send_whole(
        self, status: int, headers: Headers, content: bytes, *, then: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Send a complete response. ``then`` runs after the content is sent, but before the server considers it complete."""
        await self({"type": "http.response.start", "status": status, "headers": headers})
        content = b"" if self._method == "HEAD" else content
        if then is not None:
            await self({"type": "http.response.body", "body": content, "more_body": True})
            await then()
            content = b""
        await self({"type": "http.response.body", "body": content, "more_body": False})


async def _refuse(refusal: Problem, scope: Scope, request_id: str, answer: _Answer, body: _Body) -> None:
    content_type, content = rendered(refusal, scope["path"], request_id)
    headers = refusal_headers(refusal, content_type, content)
    if body.complete or not _has_body(scope):
        await answer.send_whole(refusal.status, headers, content)
    else:
        await answer.send_whole(refusal.status, [*headers, (b"connection", b"close")], content, then=body.discard)


def refusal_headers(refusal: Problem, content_type: str, content: bytes) -> Headers:
    return [
        (b"content-type", content_type.encode()),
        (b"content-length", b"%d" % len(content)),
        *((name.lower().encode(), value.encode()) for name, value in refusal.headers.items()),
    ]


def _refusal(scope: Scope) -> Problem | None:
    path = scope["path"]
    if path not in HEALTH_PATHS and not is_allowed_host(scope):
        return problems.UNKNOWN_HOST
    if scope["method"] == "OPTIONS":
        return None
    if path in WEBSOCKET_PATHS:
        return problems.NOT_WEBSOCKET
    return _key_refusal(scope) if is_protocol(path) else None


def _body_refusal(scope: Scope, most: int) -> Problem | None:
    if not _has_body(scope):
        return None
    codings = {coding.strip().lower() for value in _all(scope, b"content-encoding") for coding in value.split(b",")}
    if codings - {b"", b"identity"}:
        return problems.ENCODED
    length = _one(scope, b"content-length")
    if length is not None and length.isdecimal() and int(length) > most:
        return problems.too_large(most)
    return None


def _key_refusal(scope: Scope) -> Problem | None:
    values = _all(scope, b"authorization")
    if not values:
        public = settings.AGENTHOST_PUBLIC_META and scope["method"] in ("GET", "HEAD") and _META_PATH.fullmatch(scope["path"])
        return None if public else problems.NO_KEY
    scheme, _space, key = values[0].decode("latin-1").strip().partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not looks_valid(key.strip()):
        return problems.MALFORMED_KEY
    return None


def key_of(scope: Scope) -> str:
    """The key of a request that the guard has accepted; "" for public paths."""
    return (_one(scope, b"authorization") or "").strip().partition(" ")[2].strip()


def is_allowed_host(scope: Scope) -> bool:
    allowed = settings.ALLOWED_HOSTS
    if "*" in allowed:
        return True
    host = _one(scope, b"host") or ""
    return len(host) <= _LONGEST_HOST and _is_allowed(host, tuple(allowed))


@functools.lru_cache(maxsize=256)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _port = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


def _common_headers(scope: Scope, request_id: str) -> Headers:
    own = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if settings.SECURE_HSTS_SECONDS and scope.get("scheme") == "https":
        subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
        own.append((b"strict-transport-security", f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}".encode()))
    return own + cors.response_headers(scope["path"], _one(scope, b"origin"))


def _has_body(scope: Scope) -> bool:
    """Whether the headers announce a body. In HTTP/2 a body may come unannounced, but this server speaks HTTP/1.1 only."""
    length = _one(scope, b"content-length")
    return (length is not None and length != "0") or bool(_all(scope, b"transfer-encoding"))


def _all(scope: Scope, name: bytes) -> list[bytes]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value for key, value in headers if key == name]


def _one(scope: Scope, name: bytes) -> str | None:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None
