"""uvicorn's WebSocket protocol, with limits on buffered bytes and on small frames per peer.

A peer whose frames wait to be served does not time out; a peer that reads nothing is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, cast

from django.conf import settings
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from agenthost.edge import bodies
from sessions_app.core.base import shared_timer
from sessions_app.core.base.buckets import Bucket
from sessions_app.core.base.small_events import SmallEvent, SmallQueue

log = logging.getLogger(__name__)

DONE = "agenthost.done"
"""A member of ``websocket.receive``: a function to call when the message is served. Until then it counts."""
OWNER = "agenthost.owner"
"""A member of ``websocket.accept``: the tenant for which messages count."""
WRITE_TEXT = "agenthost.write_text"
"""ASGI extension: sends a small text at once, without a task, or returns False if it has to be sent as usual."""
_CLOSE_SECONDS = 5.0
_FAILED = 1011
_TRY_LATER = 1013
_FRAGMENT = 65536
"""Characters per fragment of a long text, so that only one fragment is copied for a peer that reads nothing."""
_PIECE = 4096
"""Bytes that are parsed at once: some hundreds of the smallest frames."""
_FRAMES_PER_SECOND = 500
_FRAMES_AT_ONCE = 2000
"""For frames that are not whole messages (pings, pongs, fragments), which no other limit covers."""


@lru_cache(maxsize=8)
def frame_of(text: str) -> bytes:
    """A server's frames are not masked, so all peers that get a text one after the other get the same bytes."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=False)


class WebSocket(WebSocketsSansIOProtocol):
    """While messages of the peer wait to be served, nothing more is read from it, including pongs, so it does not time out.

    Nothing is read before the handshake is complete. Messages, complete or not, count in the same budget as request bodies
    until they are served. When the application has ended, the peer has a few seconds to read the rest.
    """

    def __init__(self, *arguments: Any, on_lost: Callable[[], None] = lambda: None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.queue = cast(Any, SmallQueue())
        self.writable = SmallEvent()
        self.writable.set()
        self._on_lost = on_lost
        self._unread = memoryview(b"")
        self._accepted = self._is_throttled = False
        self._frame_rate = Bucket(_FRAMES_PER_SECOND, _FRAMES_AT_ONCE)
        self._pending_pong: list[bytes] = []
        self._owner: Hashable = None
        self._counted = self._complete = 0
        """Bytes counted for the owner, and those of them that belong to complete messages."""
        self._sizes: list[int] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._lost = False
        self._sending_text = asyncio.Lock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
        self._lost = True
        self._unread = memoryview(b"")
        bodies.BUDGET.give_back(self._owner, self._counted)
        self._counted = 0
        self._stop_deadline()
        super().connection_lost(exc)

    # --- bytes in ---

    def data_received(self, data: bytes) -> None:
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._feed()

    def _feed(self) -> None:
        """Parse the bytes that were read until a limit is reached, and pause or resume reading."""
        while self._unread and not (self.read_paused or self._is_throttled or self.transport.is_closing()):
            piece, self._unread = self._unread[:_PIECE], self._unread[_PIECE:]
            super().data_received(piece)  # type: ignore[arg-type]  # it only adds it to a bytearray
            self._count()
            self._throttle()
        if self.transport.is_closing():
            self._unread = memoryview(b"")
        elif self.read_paused or self._is_throttled or not self._accepted:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _throttle(self) -> None:
        seconds = self._frame_rate.wait(self.loop.time())
        if seconds and not self._is_throttled and not self.close_sent:
            self._is_throttled = True
            # At least a second, rather than a short pause after each frame.
            self.loop.call_later(max(1.0, seconds), self._end_throttle)

    def _end_throttle(self) -> None:
        self._is_throttled = False
        self._feed()

    # --- frames ---

    def handle_cont(self, event: Any) -> None:
        self._frame_rate.borrow(self.loop.time())
        # One bytearray instead of a list, in which even empty fragments would take memory.
        whole: Any = self.frames[0]
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
            self.frames = [whole]
        whole += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        self._frame_rate.borrow(self.loop.time())
        if self.writable.is_set() or self.conn.state is not State.OPEN:
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            # A peer that reads nothing gets a pong for its last ping only (RFC 6455, section 5.5.3).
            self._pending_pong = pongs[-1:]

    def handle_pong(self, event: Any) -> None:
        self._frame_rate.borrow(self.loop.time())
        super().handle_pong(event)

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pending_pong = self._pending_pong, []
        if pong and self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(pong[0])

    def send_receive_event_to_app(self) -> None:
        size, waiting = sum(map(len, self.frames)), self.queue.qsize()
        super().send_receive_event_to_app()
        if self.queue.qsize() > waiting and not self.close_sent:
            self._sizes.append(size)
            self._complete += size
            # The next message has its own deadline.
            self._stop_deadline()

    # --- buffered bytes ---

    def _count(self) -> None:
        """Count buffered bytes. Ends the connection if the budget is exceeded or a message takes too long to arrive."""
        part = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if not part or self.close_sent:
            self._stop_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(settings.AGENTHOST_BODY_SECONDS, self._is_late)
        more = part + self._complete - self._counted
        if more <= 0:
            bodies.BUDGET.give_back(self._owner, -more)
        elif not bodies.BUDGET.take(self._owner, more):
            self._end("too many unserved messages")
            return
        self._counted += more

    def _done(self, size: int) -> None:
        """A message is served."""
        if not self._lost:
            self._complete -= size
            self._counted -= size
            bodies.BUDGET.give_back(self._owner, size)

    def _is_late(self) -> None:
        self._deadline = None
        if self.read_paused or self._is_throttled:
            # Reading was paused by this server, so the peer gets more time.
            self._deadline = self.loop.call_later(settings.AGENTHOST_BODY_SECONDS, self._is_late)
        else:
            self._end("message not complete in time")

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self, reason: str) -> None:
        if self.close_sent:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.conn.fail(_TRY_LATER, reason)
            self.handle_parser_exception()

    # --- the application ---

    async def receive(self) -> Any:
        message: Any = await super().receive()
        # super().receive() may have resumed reading.
        self._feed()
        if message["type"] == "websocket.receive":
            message[DONE] = partial(self._done, self._sizes.pop(0))
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.send" and message.get("text") is not None:
            async with self._sending_text:
                await self._send_text(message["text"])
            return
        if message["type"] == "websocket.accept":
            self._owner = message.get(OWNER)
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._accepted = True
            self._forget_handshake()
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # The handshake was refused. Without this, uvicorn would log it as an error of the application.
            self.handshake_complete = True
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self._feed()

    def write_text(self, text: str) -> bool:
        """Send a text, unless the peer has to read first; False if it was not sent."""
        if not self._accepted or self.close_sent or self.disconnected or not self.writable.is_set():
            return False
        if self._sending_text.locked() or self.conn.state is not State.OPEN or self.transport.is_closing():
            return False
        self.transport.write(frame_of(text))
        return True

    def _forget_handshake(self) -> None:
        """Free the headers, which have the key: the parser and the scope would keep them as long as the connection."""
        self.request.headers.clear()
        self.response.headers.clear()
        cast(Any, self.scope["headers"]).clear()
        del self.request, self.response

    async def _send_text(self, text: str) -> None:
        """Send a text; a long one in fragments, each when the peer has read most of the earlier ones."""
        for start in range(0, len(text) - _FRAGMENT, _FRAGMENT):
            await self._send_fragment(text[start : start + _FRAGMENT], is_first=not start, fin=False)
        if len(text) <= _FRAGMENT:
            await super().send({"type": "websocket.send", "text": text})
        else:
            start = (len(text) - 1) // _FRAGMENT * _FRAGMENT
            await self._send_fragment(text[start:], is_first=False, fin=True)

    async def _send_fragment(self, part: str, *, is_first: bool, fin: bool) -> None:
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        try:
            if is_first:
                self.conn.send_text(part.encode(), fin=fin)
            else:
                self.conn.send_continuation(part.encode(), fin=fin)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    async def run_asgi(self) -> None:
        self.scope["extensions"][WRITE_TEXT] = {"call": self.write_text}
        try:
            await super().run_asgi()
        finally:
            # It refers to this object, which refers to the scope.
            self.scope["extensions"].clear()
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    # --- pings ---

    def schedule_ping(self) -> None:
        shared_timer.of_loop(cast(float, self.ping_interval)).put(self)

    def due(self) -> None:
        """It is time for a ping."""
        self.send_keepalive_ping()

    def stop_keepalive(self) -> None:
        if self.ping_interval:
            shared_timer.of_loop(self.ping_interval).remove(self)
        super().stop_keepalive()

    # --- the end ---

    def keepalive_timeout(self) -> None:
        if (self.read_paused or self._is_throttled) and self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
            return
        if not self.close_sent and not self.transport.is_closing():
            # The close code is 1011, which would look like a server failure without this line.
            log.info("websocket_ping_timeout: no pong for %s s, connection dropped", self.ping_timeout)
        super().keepalive_timeout()

    def handle_parser_exception(self) -> None:
        error = self.conn.parser_exc
        if error is not None and self.conn.close_sent is not None and self.conn.close_sent.code == _FAILED:
            log.error("websocket_failed", exc_info=error)
        super().handle_parser_exception()
