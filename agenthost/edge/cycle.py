"""One request and its response: uvicorn's cycle, with a shorter way to write the response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from sessions_app.core.base.small_events import SmallEvent

log = logging.getLogger("uvicorn.error")

_NOT_IN_NAMES = bytes(range(33)) + b'\x7f()<>@,;:[]={}\\"'
_NOT_IN_VALUES = bytes(set(range(32)) - {9}) + b"\x7f"
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_WITHOUT_BODY = (204, 304)
_COPIED_BYTES = 65536
"""Parts of a body up to this size are copied to be written together with what precedes them."""


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
        self._head = b""
        """The head of the response, as long as it may be written together with the first part of the body."""

    def has_body(self) -> bool:
        """Whether ``receive`` returns at once."""
        return self.message_event.is_set() and not self.waiting_for_100_continue

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._start(message)
        elif not self.response_complete:
            self._continue(message)
        else:
            raise RuntimeError(f"Unexpected ASGI message '{message['type']}' sent, after response already completed.")

    def write_now(self, chunk: bytes) -> bool:
        """Write a chunk of a chunked body, unless the client has to read first; False if it was not written."""
        is_sending = self.response_started and not self.response_complete
        if not is_sending or not self.chunked_encoding or self.disconnected or self.flow.write_paused:
            return False
        if self._head or self.scope["method"] == "HEAD" or self.transport.is_closing():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return True

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
        self._head = b"".join(head)
        # A body that is not ready yet must not delay it.
        asyncio.get_running_loop().call_soon(self._write_head)

    def _write_head(self) -> None:
        head, self._head = self._head, b""
        if head and not self.transport.is_closing():
            self.transport.write(head)

    def _continue(self, message: Any) -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{message['type']}'.")
        body, has_more = message.get("body", b""), message.get("more_body", False)
        parts, self._head = [self._head], b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            if body:
                parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if not has_more:
                parts.append(b"0\r\n\r\n")
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("Response content longer than Content-Length")
            parts.append(body)
        if len(body) > _COPIED_BYTES:
            self.transport.writelines(parts)
        elif written := b"".join(parts):
            self.transport.write(written)
        if not has_more:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _has_any(text: bytes, excluded: bytes) -> bool:
    return len(text.translate(None, excluded)) != len(text)
