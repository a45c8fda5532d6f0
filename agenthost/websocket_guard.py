"""The ASGI layer before WebSockets: which path is served, to which host, and what the log may know of it.

A key may come in the query, and servers write the query into their logs; so it is taken out of the scope that the
server holds, and the application gets a scope of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agenthost.edge import proxies
from agenthost.guard import Application, Message, Receive, Scope, Send, new_request_id, sane_request_id
from agenthost.websocket import OWNER
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.core.base import log_context

log = logging.getLogger(__name__)
access_log = logging.getLogger("agenthost.access")


class SocketGuard:
    """``applications`` by path."""

    def __init__(self, applications: Mapping[str, Application]) -> None:
        self._applications = applications

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = dict(scope)
        scope["query_string"] = b""
        given = _one(scope, b"x-request-id")
        request_id = given if sane_request_id(given) else new_request_id()
        inner["agenthost"] = {"request_id": request_id, "address": proxies.client_of(scope)}
        began = time.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "websocket.accept":
                status = 101
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers, OWNER: inner["agenthost"].get("owner")}
            elif message["type"] == "websocket.http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        with log_context.about(request=request_id), proxies.counted(scope) as admitted:
            try:
                application = self._applications.get(scope["path"])
                if not admitted:
                    await _refuse(inner, receive, noting, problems.TOO_MANY_FROM_ADDRESS)
                elif not _is_our_host(scope):
                    await _refuse(inner, receive, noting, problems.UNKNOWN_HOST)
                elif application is None:
                    await _refuse(inner, receive, noting, problems.NOTHING_HERE)
                else:
                    await application(inner, receive, noting)
            finally:
                access_log.info("WebSocket %s %d %.0f ms", scope["path"], status, (time.monotonic() - began) * 1000)


async def _refuse(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    content = problems.document(problem, scope["agenthost"]["request_id"])
    headers = [(b"content-type", problems.CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(content))]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": content})


def _is_our_host(scope: Scope) -> bool:
    allowed = settings.ALLOWED_HOSTS
    if "*" in allowed:
        return True
    domain, _port = split_domain_port(_one(scope, b"host"))
    return bool(domain) and validate_host(domain, allowed)


def _one(scope: Mapping[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
