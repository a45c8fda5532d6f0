"""uvicorn's WebSocket, with limits on what a peer makes this process hold and do.

A peer that is kept waiting is not taken for a dead one, and a deaf one is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from django.conf import settings
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.protocol import State

from agenthost.edge import bodies
from sessions_app.core.base.buckets import Bucket

log = logging.getLogger(__name__)

DONE = "agenthost.done"
"""A member of ``websocket.receive``: called when the message is not needed any more. Until then it is counted."""
OWNER = "agenthost.owner"
"""A member of ``websocket.accept``: for whom messages are counted."""
_LAST_WORDS_SECONDS = 5.0
_FAILED = 1011
_TRY_LATER = 1013
_FRAGMENT = 65536
"""Characters of a text that are written at once: a peer that reads nothing keeps no second copy of a large one."""
_PIECE = 4096
"""Bytes that are taken apart at once: some hundreds of the smallest frames."""
_FRAMES_PER_SECOND = 500
_FRAMES_AT_ONCE = 2000
"""Of frames that are no whole message: pings, pongs, fragments. They cost time, and nothing else limits them."""


class WebSocket(WebSocketsSansIOProtocol):
    """While frames of the peer wait to be served nothing more is read from it, its pongs neither: it cannot be blamed.

    Nothing is read before the handshake is answered. Messages, complete or not, are counted like bodies of requests until
    they are served. Once the application is done, what the peer does not read within moments is dropped with the connection.
    """

    def __init__(self, *arguments: Any, on_lost: Callable[[], None] = lambda: None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._on_lost = on_lost
        self._unread = memoryview(b"")
        self._accepted = self._resting = False
        self._small_frames = Bucket(_FRAMES_PER_SECOND, _FRAMES_AT_ONCE)
        self._late_pong: list[bytes] = []
        self._owner: Hashable = None
        self._counted = self._whole = 0
        """Bytes: counted for the owner; of them, of whole messages."""
        self._sizes: deque[int] = deque()
        self._deadline: asyncio.TimerHandle | None = None
        self._lost = False
        self._sending_text = asyncio.Lock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
        self._lost = True
        self._unread = memoryview(b"")
        bodies.OF_PROCESS.give_back(self._owner, self._counted)
        self._counted = 0
        self._stop_deadline()
        super().connection_lost(exc)

    # --- bytes in ---

    def data_received(self, data: bytes) -> None:
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._feed()

    def _feed(self) -> None:
        """Take apart what was read, as far as the peer may go now, and then read on or not."""
        while self._unread and not (self.read_paused or self._resting or self.transport.is_closing()):
            piece, self._unread = self._unread[:_PIECE], self._unread[_PIECE:]
            super().data_received(piece)  # type: ignore[arg-type]  # it only adds it to a bytearray
            self._count()
            self._rest_if_busy()
        if self.transport.is_closing():
            self._unread = memoryview(b"")
        elif self.read_paused or self._resting or not self._accepted:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _rest_if_busy(self) -> None:
        seconds = self._small_frames.wait(self.loop.time())
        if seconds and not self._resting and not self.close_sent:
            self._resting = True
            # Rather a second now and then than a moment after each frame.
            self.loop.call_later(max(1.0, seconds), self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._feed()

    # --- frames ---

    def handle_cont(self, event: Any) -> None:
        self._small_frames.borrow(self.loop.time())
        # One piece of memory: in a list of them, fragments without a byte would take some as well.
        whole: Any = self.frames[0]
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
            self.frames = [whole]
        whole += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        self._small_frames.borrow(self.loop.time())
        if self.writable.is_set() or self.conn.state is not State.OPEN:
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            # A peer that reads nothing gets an answer to its last ping only (RFC 6455, section 5.5.3).
            self._late_pong = pongs[-1:]

    def handle_pong(self, event: Any) -> None:
        self._small_frames.borrow(self.loop.time())
        super().handle_pong(event)

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._late_pong = self._late_pong, []
        if pong and self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(pong[0])

    def send_receive_event_to_app(self) -> None:
        size, waiting = sum(map(len, self.frames)), self.queue.qsize()
        super().send_receive_event_to_app()
        if self.queue.qsize() > waiting and not self.close_sent:
            self._sizes.append(size)
            self._whole += size
            # The next one has its own time.
            self._stop_deadline()

    # --- what is held ---

    def _count(self) -> None:
        """Count what is held; the connection ends if that is too much in all, or a message takes too long to arrive."""
        part = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if not part or self.close_sent:
            self._stop_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(settings.AGENTHOST_BODY_SECONDS, self._is_late)
        more = part + self._whole - self._counted
        if more <= 0:
            bodies.OF_PROCESS.give_back(self._owner, -more)
        elif not bodies.OF_PROCESS.take(self._owner, more):
            self._end("too many messages at once")
            return
        self._counted += more

    def _done(self, size: int) -> None:
        """A message is served."""
        if not self._lost:
            self._whole -= size
            self._counted -= size
            bodies.OF_PROCESS.give_back(self._owner, size)

    def _is_late(self) -> None:
        self._deadline = None
        if self.read_paused or self._resting:
            # Not the peer's fault.
            self._deadline = self.loop.call_later(settings.AGENTHOST_BODY_SECONDS, self._is_late)
        else:
            self._end("a message did not arrive in time")

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
        # That may have begun to read on.
        self._feed()
        if message["type"] == "websocket.receive":
            message[DONE] = partial(self._done, self._sizes.popleft())
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
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # The handshake is over: it was refused. Otherwise that would be logged as the application's fault.
            self.handshake_complete = True
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self._feed()

    async def _send_text(self, text: str) -> None:
        """Send a text; a long one in fragments, the next one when the peer has read most of those before."""
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
        try:
            await super().run_asgi()
        finally:
            self.loop.call_later(_LAST_WORDS_SECONDS, self.transport.abort)

    # --- the end ---

    def keepalive_timeout(self) -> None:
        if (self.read_paused or self._resting) and self.ping_timeout is not None:
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
