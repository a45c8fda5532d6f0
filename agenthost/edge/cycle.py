"""One request and its response: uvicorn's cycle, with a shorter way to write the head of a response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from sessions_app.core.base.small_events import SmallEvent

log = logging.getLogger("uvicorn.error")

_NOT_IN_NAMES = bytes(range(33)) + b'\x7f()<>@,;:[]={}\\"'
_NOT_IN_VALUES = bytes(set(range(32)) - {9}) + b"\x7f"
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_WITHOUT_BODY = (204, 304)


class Cycle(RequestResponseCycle):
    """The guard writes the access log."""

    def __init__(
        self,
        scope: Any,
        transport: asyncio.Transport,
        flow: FlowControl,
        default_headers: list[tuple[bytes, bytes]],
        on_response: Callable[[], None],
        *,
        expects_continue: bool,
        keep_alive: bool,
    ) -> None:
        self.scope, self.transport, self.flow = scope, transport, flow
        self.default_headers, self.on_response = default_headers, on_response
        self.logger, self.access_log = log, False
        self.message_event = SmallEvent()
        self.disconnected = False
        self.keep_alive, self.waiting_for_100_continue = keep_alive, expects_continue
        self.body, self.more_body = bytearray(), True
        self.response_started = self.response_complete = False
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0

    def has_body(self) -> bool:
        """Whether ``receive`` returns at once."""
        return self.message_event.is_set() and not self.waiting_for_100_continue

    def send(self, message: Any) -> Coroutine[Any, Any, None]:
        return super().send(message) if self.response_started else self._send_start(message)

    async def _send_start(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if not self.disconnected:
            self._start(message)

    def _start(self, message: Any) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{message['type']}'.")
        self.response_started, self.waiting_for_100_continue = True, False
        status: int = message["status"]
        headers = [(name.lower(), value) for name, value in (*self.default_headers, *message.get("headers", ()))]
        if _has_any(b"".join([name for name, _value in headers]), _NOT_IN_NAMES):
            raise RuntimeError("Invalid HTTP header name.")
        if _has_any(b"".join([value for _name, value in headers]), _NOT_IN_VALUES):
            raise RuntimeError("Invalid HTTP header value.")
        closes = False
        for name, value in headers:
            if name not in _FRAMING:
                continue
            if name == b"connection":
                if b"close" in [option.strip() for option in value.lower().split(b",")]:
                    self.keep_alive, closes = False, True
            elif name == b"content-length":
                if self.chunked_encoding is None:
                    self.expected_content_length, self.chunked_encoding = int(value), False
            elif value.lower() == b"chunked":
                self.expected_content_length, self.chunked_encoding = 0, True
        head = [STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers]]
        if not self.keep_alive and not closes:
            head.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _WITHOUT_BODY:
            self.chunked_encoding = True
            head.append(b"transfer-encoding: chunked\r\n")
        head.append(b"\r\n")
        self.transport.write(b"".join(head))


def _has_any(text: bytes, excluded: bytes) -> bool:
    return len(text.translate(None, excluded)) != len(text)
