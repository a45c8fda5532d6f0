"""What is behind which kind of connection: the guard, and Django once for programs and once for people.

Programs' requests pass through no page's middleware: cookies, CSRF, messages. Each of those costs a
change of threads, together more than the rest of a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from channels.routing import ProtocolTypeRouter
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from agenthost.guard import HEALTH_PATHS, Guard, Receive, Scope, Send, is_protocol
from agenthost.middleware import known_request


class ProtocolHandler(ASGIHandler):
    """Django's handler with the one middleware that programs need, whatever MIDDLEWARE says for people."""

    _get_response_async: Callable[[HttpRequest], Awaitable[HttpResponseBase]]

    def load_middleware(self, is_async: bool = False) -> None:
        assert is_async
        self._view_middleware: list[object] = []
        self._template_response_middleware: list[object] = []
        self._exception_middleware: list[object] = []
        view = convert_exception_to_response(self._get_response_async)
        self._middleware_chain = convert_exception_to_response(known_request(view))


class ByAudience:
    """Sends a request to the handler for programs or to the one for people, by its path."""

    def __init__(self) -> None:
        self._programs, self._people = ProtocolHandler(), ASGIHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        handler = self._programs if is_protocol(path) or path in HEALTH_PATHS else self._people
        await handler(cast(dict[str, Any], scope), receive, cast(Any, send))


async def refuse_websocket(_scope: Scope, receive: Receive, send: Send) -> None:
    """Nothing here speaks WebSocket yet: closing before accepting answers the handshake with 403."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def live(_scope: Scope, receive: Receive, send: Send) -> None:
    """The server's start and end. What must start or stop is started and stopped by agenthost.processes."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


application = ProtocolTypeRouter({"http": Guard(ByAudience()), "websocket": refuse_websocket, "lifespan": live})
