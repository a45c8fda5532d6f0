"""uvicorn's WebSocket, with a peer that is kept waiting not taken for a dead one, and a deaf one not waited for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

log = logging.getLogger(__name__)

_LAST_WORDS_SECONDS = 5.0
_FAILED = 1011


class WebSocket(WebSocketsSansIOProtocol):
    """While frames of the peer wait to be served nothing more is read from it, its pongs neither: it cannot be blamed.

    Once the application is done, what the peer does not read within moments is dropped with the connection.
    """

    def __init__(self, *arguments: Any, on_lost: Callable[[], None] = lambda: None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        if self.read_paused and self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        if not self.close_sent and not self.transport.is_closing():
            # Without a line of its own it looks like a failure of the server's: the code that is sent is 1011.
            log.info("a WebSocket's peer has answered no ping for %s s and is dropped", self.ping_timeout)
        super().keepalive_timeout()

    def handle_parser_exception(self) -> None:
        error = self.conn.parser_exc
        if error is not None and self.conn.close_sent is not None and self.conn.close_sent.code == _FAILED:
            log.error("a WebSocket failed", exc_info=error)
        super().handle_parser_exception()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # The handshake is over: it was refused. Otherwise that would be logged as the application's fault.
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self.loop.call_later(_LAST_WORDS_SECONDS, self.transport.abort)
