"""ASGI layer before WebSocket applications: checks path and host, adds request ids, writes the access log.

The query string may contain a key, and servers log query strings. So it is removed from the server's scope, and the
application gets a copy of the original scope.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from agenthost.edge import proxies
from agenthost.guard import Application, Message, Receive, Scope, Send, is_allowed_host, refusal_headers, request_id_of
from agenthost.websocket import OWNER
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.core.base import client_address, log_context

log = logging.getLogger(__name__)
access_log = logging.getLogger("agenthost.access")


class WebSocketGuard:
    """Passes a WebSocket on to one of ``applications``, by its path."""

    def __init__(self, applications: Mapping[str, Application]) -> None:
        self._applications = applications

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = dict(scope)
        scope["query_string"] = b""
        request_id = request_id_of(scope)
        address = proxies.client_of(scope)
        inner["agenthost"] = {"request_id": request_id, "address": address}
        client_address.current.set(address)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
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
                    await _refuse(inner, receive, send_with_id, problems.TOO_MANY_FROM_ADDRESS)
                elif not is_allowed_host(scope):
                    await _refuse(inner, receive, send_with_id, problems.UNKNOWN_HOST)
                elif application is None:
                    await _refuse(inner, receive, send_with_id, problems.NOTHING_HERE)
                else:
                    await application(inner, receive, send_with_id)
            finally:
                access_log.info("WebSocket %s %d %.0f ms", scope["path"], status, (time.monotonic() - started) * 1000)


async def _refuse(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    content = problems.document(problem, scope["agenthost"]["request_id"])
    headers = refusal_headers(problem, problems.CONTENT_TYPE, content)
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": content})
