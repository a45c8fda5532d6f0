"""The ASGI layer before Django: what can be decided about a request without its body.

Django reads a whole body before any view runs. So a client that has no key or a wrong one, sends too much or too
slowly is answered here, in the protocol's words; and what every answer carries (A95, A122) is added here, because
Django's own errors and streams pass by too. It knows headers and paths; what they mean is the faces' business.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agenthost import cors
from agenthost.cors import Headers
from agenthost.edge import bodies, proxies
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.core.base import log_context
from sessions_app.core.tenancy import admission
from sessions_app.core.tenancy.keys import looks_like_key

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Judge = Callable[[Scope], Awaitable[Problem | None]]

log = logging.getLogger(__name__)
access_log = logging.getLogger("agenthost.access")

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
WEBSOCKET_PATHS = frozenset({"/ahp"})
WAIT_FOR_READER = "agenthost.wait_for_reader"
"""An extension of the scope: the server drops clients that read nothing, until it is told that this one has a good key.

Called with a way to ask whether it still is: ``async () -> bool``, or None.
"""
DROP = "agenthost.drop"
"""An extension of the scope: ends the connection at once, whatever of the answer its client has not read."""
LINGER_SECONDS = 5.0
PAGE_BODY_BYTES = 256 * 1024
"""The largest body for pages. A sign-in form may come from anybody."""
_STRANGER_BYTES = 1024 * 1024
"""How much of a body is read and dropped when its key is refused."""

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_META_PATH = re.compile(r"/aap/v\d+/meta")


def sane_request_id(value: str) -> bool:
    return _SANE_REQUEST_ID.fullmatch(value) is not None


def new_request_id() -> str:
    return f"req_{secrets.token_urlsafe(15)}"


def told(refusal: Problem, path: str, request_id: str) -> tuple[str, bytes]:
    """Content type and content: a problem document for programs (A6), a sentence for people."""
    if is_protocol(path) or path in WEBSOCKET_PATHS:
        return problems.CONTENT_TYPE, problems.document(refusal, request_id)
    return "text/plain; charset=utf-8", f"{refusal.detail}\n".encode()


def is_protocol(path: str) -> bool:
    return path.startswith("/aap/") or path == "/aap"


class Guard:
    """Wraps an ASGI application that answers HTTP requests.

    ``judge`` decides about a program's key before its body is read; without it, a well-formed key is good enough here.
    """

    def __init__(self, application: Application, judge: Judge | None = None) -> None:
        self._application, self._judge = application, judge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _one(scope, b"x-request-id") or ""
        request_id = given if sane_request_id(given) else new_request_id()
        scope["agenthost"] = {"request_id": request_id, "address": proxies.client_of(scope)}
        log_context.bind(request=request_id)
        body = _Body(receive, settings.AGENTHOST_MAX_BODY_BYTES if is_protocol(scope["path"]) else PAGE_BODY_BYTES)
        answer = _Answer(send, _headers_of_every_answer(scope, request_id), scope["method"], body.forget)
        began = time.monotonic()
        try:
            with proxies.counted(scope) as admitted:
                await self._answer(scope, request_id, answer, body, admitted=admitted)
        finally:
            body.forget()
            if scope["path"] not in HEALTH_PATHS:
                # The path alone: a query may carry a token.
                access_log.info(
                    "%s %s %d %.0f ms", scope["method"], scope["path"], answer.status, (time.monotonic() - began) * 1000
                )

    async def _answer(self, scope: Scope, request_id: str, answer: _Answer, body: _Body, *, admitted: bool) -> None:
        refusal = _refusal(scope) if admitted else problems.TOO_MANY_FROM_ADDRESS
        address = scope["agenthost"]["address"]
        if refusal is not None or scope["method"] == "OPTIONS":
            await admission.delay_refusal(address)
        elif scope["path"] in HEALTH_PATHS:
            await admission.delay_health(address)
        if refusal is None and scope["method"] == "OPTIONS":
            await answer.whole(204, cors.of_preflight(scope["path"], _one(scope, b"origin")), b"")
            return
        if refusal is None:
            try:
                refusal = await self._serve(scope, body, answer)
            except Exception:
                if answer.status:
                    raise
                log.exception("a request failed")
                refusal = problems.FAILED
            if refusal is not None and refusal.status == HTTPStatus.UNAUTHORIZED:
                await admission.delay_refusal(address)
        if refusal is not None:
            await _refuse(refusal, scope, request_id, answer, body)

    async def _serve(self, scope: Scope, body: _Body, answer: _Answer) -> Problem | None:
        if self._judge is not None and is_protocol(scope["path"]):
            refusal = await self._judge(scope)
            if refusal is not None:
                return refusal
            if "owner" in scope["agenthost"] and WAIT_FOR_READER in scope.get("extensions", {}):
                scope["extensions"][WAIT_FOR_READER]["call"](scope["agenthost"].get("key_is_good"))
        body.sender_is_known(scope["agenthost"].get("owner"))
        refusal = _body_refusal(scope, body.most)
        if refusal is not None:
            return refusal
        await self._application(scope, body, answer)
        # If the body was refused while it arrived, the application saw a disconnect.
        return None if answer.status else body.refusal


class _Body:
    """A request's body on its way in: counted, and bounded in time.

    The application is told of a refusal as of a client that went away: the one thing that makes any ASGI
    application give up reading.
    """

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self.most = most
        self._discarded = min(2 * most, _STRANGER_BYTES)
        self._deadline = asyncio.get_running_loop().time() + settings.AGENTHOST_BODY_SECONDS
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
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
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
        elif not bodies.OF_PROCESS.take(self._owner, size):
            self.refusal = problems.TOO_MANY_BODIES
        else:
            self._counted += size
            return message
        return {"type": "http.disconnect"}

    def sender_is_known(self, owner: Hashable) -> None:
        """Count the body for its tenant. More of it is read and dropped if it is refused, so that the client gets the answer."""
        self._owner = owner
        self._discarded = 2 * self.most

    def forget(self) -> None:
        """Stop counting the body: its request is being answered, or is over."""
        bodies.OF_PROCESS.give_back(self._owner, self._counted)
        self._counted = 0

    async def discard(self) -> None:
        """Takes what still comes, for a moment and up to a bound.

        Closing on a client that is still sending resets its connection, and it never sees the answer.
        """
        left = self._discarded
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.complete and left > 0:
                    message = await self._receive()
                    self.complete = message["type"] != "http.request" or not message.get("more_body", False)
                    left -= len(message.get("body", b""))
        except TimeoutError:
            pass


class _Answer:
    """The way out: adds what every answer carries, and remembers whether one was begun. ``begun`` is called then."""

    def __init__(self, send: Send, headers: Headers, method: str, begun: Callable[[], object]) -> None:
        self._send, self._headers, self._method, self._begun = send, headers, method, begun
        # An application's own Vary stays beside ours; everything else is ours alone.
        self._names = {name for name, _value in headers} - {b"vary"}
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begun()
            kept = [(name, value) for name, value in message.get("headers", ()) if bytes(name).lower() not in self._names]
            message = {**message, "headers": [*kept, *self._headers]}
        await self._send(message)

    async def whole(
        self, status: int, headers: Headers, content: bytes, *, then: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """A complete answer; ``then`` runs when the client can have it all, but before the server takes it for done."""
        await self({"type": "http.response.start", "status": status, "headers": headers})
        content = b"" if self._method == "HEAD" else content
        if then is not None:
            await self({"type": "http.response.body", "body": content, "more_body": True})
            await then()
            content = b""
        await self({"type": "http.response.body", "body": content, "more_body": False})


async def _refuse(refusal: Problem, scope: Scope, request_id: str, answer: _Answer, body: _Body) -> None:
    content_type, content = told(refusal, scope["path"], request_id)
    headers: Headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    if body.complete or not _has_body(scope):
        await answer.whole(refusal.status, headers, content)
    else:
        await answer.whole(refusal.status, [*headers, (b"connection", b"close")], content, then=body.discard)


def _refusal(scope: Scope) -> Problem | None:
    path = scope["path"]
    if path not in HEALTH_PATHS and not _is_our_host(scope):
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
    given = _all(scope, b"authorization")
    if not given:
        public = settings.AGENTHOST_PUBLIC_META and scope["method"] in ("GET", "HEAD") and _META_PATH.fullmatch(scope["path"])
        return None if public else problems.NO_KEY
    scheme, _space, key = given[0].decode("latin-1").strip().partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not looks_like_key(key.strip()):
        return problems.MALFORMED_KEY
    return None


def shown_key(scope: Scope) -> str:
    """The key of a request that the guard let pass; "" for what is public."""
    return (_one(scope, b"authorization") or "").strip().partition(" ")[2].strip()


def _is_our_host(scope: Scope) -> bool:
    allowed = settings.ALLOWED_HOSTS
    if "*" in allowed:
        return True
    domain, _port = split_domain_port(_one(scope, b"host") or "")
    return bool(domain) and validate_host(domain, allowed)


def _headers_of_every_answer(scope: Scope, request_id: str) -> Headers:
    own = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if settings.SECURE_HSTS_SECONDS and scope.get("scheme") == "https":
        subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
        own.append((b"strict-transport-security", f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}".encode()))
    return own + cors.of_answer(scope["path"], _one(scope, b"origin"))


def _has_body(scope: Scope) -> bool:
    """Whether the request announced a body; HTTP/2 need not announce one, and no server of ours speaks it."""
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
