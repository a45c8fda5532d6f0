"""The HTTP/1.1 transport: uvicorn's, with limits and strict framing; ignores unsupported upgrades.

Only the parser (llhttp) finds the ends of headers and bodies, so that every byte has one interpretation.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import logging
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NoReturn, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from agenthost.edge import refusals
from agenthost.edge.connections import Admission, Connections
from agenthost.edge.cycle import Cycle
from agenthost.edge.proxies import is_proxy
from agenthost.guard import DISCONNECT, DROP, HAS_BODY, WAIT_FOR_READER, WEBSOCKET_PATHS, WRITE
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem
from sessions_app.core.base.small_events import SmallEvent

log = logging.getLogger(__name__)
access_log = logging.getLogger("agenthost.access")

MOST_HEADERS = 200
MOST_PIPELINED = 100
"""Requests of one connection that wait for the responses to earlier ones."""

_PIECE = 65536
_FRAMING_PER_BYTE = 16
"""Allowed bytes of chunk sizes and line ends per byte of body; a chunk of one byte needs 5."""
_WEBSOCKET_LINE_BYTES = 8192
_WEBSOCKET_HEADERS = 128
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1024 * 1024
_FIRST_REQUEST_SECONDS, _NEXT_REQUEST_SECONDS = 1.0, 0.25
"""When the server stops: how long a connection may still bring a request that was on its way, if it is new or was used before."""
# Hop-by-hop headers about upgrades, which are not passed on.
_UPGRADE_HEADERS = frozenset({b"upgrade", b"http2-settings"})


KeyIsGood = Callable[[], Awaitable[bool]]


class _Refused(Exception):
    """Raised in a parser callback to stop the parser."""


class _Flow(FlowControl):
    """Does not resume reading while pipelined requests wait."""

    def __init__(self, transport: asyncio.Transport, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._is_writable_event = SmallEvent()
        self._is_writable_event.set()
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class _Pipeline(list[Any]):
    """An empty deque takes ten times the memory of an empty list, and few connections have pipelined requests."""

    __slots__ = ()

    def appendleft(self, entry: Any) -> None:
        self.insert(0, entry)


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        open_connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = cast(Any, _Pipeline())
        # Not uvicorn's lenient parser, which continues after a request with "Connection: close".
        self.parser = httptools.HttpRequestParser(self)
        self._open, self._limits = open_connections, open_connections.limits
        self._release_slot: Callable[[], None] = lambda: None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

        self._running: RequestResponseCycle | None = None
        """The request whose response is being sent; ``cycle`` is the newest request that was read."""
        self._in_head = self._in_body = False
        self._head_size = 0
        self._on_disconnect: Callable[[], object] | None = None
        self._refusal: Problem | None = None
        """Why a callback stopped the parser."""
        self._last_response: bytes | None = None
        """Sent after the responses to all earlier requests."""
        self._input_ended = False
        """Further input is dropped, because the last request is complete or was refused."""
        self._dropped = 0
        # Bytes of the current message: head, chunk sizes and trailers; and body.
        self._framing = self._body = 0
        self._body_of_piece = 0
        self._message_ended = False

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        _bound_sending(transport, self._limits.send_seconds)
        self._waits_for_reader = False
        self._key_is_good: KeyIsGood | None = None
        self._key_has_ended = False
        self._reader_timer: asyncio.TimerHandle | None = None
        self._key_check: asyncio.Task[None] | None = None
        host = self.client[0] if self.client else None
        admission, slot = self._open.enter(None if is_proxy(host) else host)
        if admission is Admission.ADDRESS_IS_FULL and self._open.reports(self.loop.time()):
            log.warning(
                "address_connection_limit: %s has %d connections (AGENTHOST_CONNECTIONS_PER_ADDRESS); if it is a proxy, "
                "add it to AGENTHOST_PROXIES",
                host,
                self._limits.per_address,
            )
        self._release_slot = slot.release
        if admission is Admission.ADMITTED:
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)
            if self._open.ending:
                self.shutdown()
        elif admission is Admission.DROPPED:
            self._input_ended = True
            transport.abort()
        else:
            is_full = admission is Admission.SERVER_IS_FULL
            self._refuse(refusals.SERVER_IS_FULL if is_full else problems.TOO_MANY_FROM_ADDRESS)

    _stops = False
    """Whether the server stops, so that the next response is the last one of this connection."""

    def shutdown(self) -> None:
        """The server stops. A request that is on its way is still answered: its sender could not know whether it took effect."""
        self._stops = True
        if self._is_answering():
            super().shutdown()
            return
        self._unset_keepalive_if_required()
        seconds = _FIRST_REQUEST_SECONDS if self._running is None else _NEXT_REQUEST_SECONDS
        self._stop_timer = self.loop.call_later(seconds, self._close_if_idle)

    _stop_timer: asyncio.TimerHandle | None = None

    def _close_if_idle(self) -> None:
        if not self._in_head and not self._is_answering():
            self._input_ended = True
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.ws_protocol_class = None
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            # uvicorn notifies only the newest request, which may not have started yet.
            self._running.disconnected = True
            self._running.message_event.set()
            if self._on_disconnect is not None:
                self._on_disconnect()
        self._on_disconnect = None
        # The scope refers to this object, which would stay in memory until the garbage collector finds the cycle.
        self.scope = self.cycle = self._running = None  # type: ignore[assignment]

    def _release(self) -> None:
        self._release_slot()
        self._stop_head_timer()
        self._stop_watching_reader()
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # --- bytes ---

    def data_received(self, data: bytes) -> None:
        if self._input_ended:
            self._dropped += len(data)
            if self._linger_timer is not None and self._dropped > _LINGER_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        try:
            for start in range(0, len(data), _PIECE):
                self._feed(data[start : start + _PIECE] if len(data) > _PIECE else data)
        except _Refused:
            self._refuse(self._refusal or refusals.MALFORMED)
        except httptools.HttpParserError as error:
            # Bytes after a request with "Connection: close" are ignored.
            if not self._input_ended:
                self._refuse(self._refusal or _problem_of(error))
        else:
            self._watch_head()

    def _feed(self, piece: bytes) -> None:
        while piece and not self._input_ended:
            self._body_of_piece, self._message_ended = 0, False
            rest = b""
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as stopped:
                # The parser stops after the headers of every request with an upgrade.
                rest = piece[stopped.args[0] :]
                self._at_upgrade(early=bool(rest))
            if self._message_ended:
                self._framing = self._body = 0
            else:
                self._framing += len(piece) - len(rest) - self._body_of_piece
                self._body += self._body_of_piece
                if self._framing > self._limits.head_bytes + _FRAMING_PER_BYTE * self._body:
                    self._refusal = refusals.head_too_large(self._limits.head_bytes)
                    raise _Refused
            piece = rest

    def _at_upgrade(self, *, early: bool) -> None:
        """Start a WebSocket, or ignore the upgrade and read the body (RFC 9110, section 7.8). ``early``: more bytes arrived."""
        self._check_head()
        if self._is_websocket():
            if early:
                self._stop(refusals.EARLY_FRAMES)
            self._check_handshake()
            self._stop_head_timer()
            self._stop_watching_reader()
            self._input_ended = True
            self.scope["method"] = "GET"
            # It takes over the transport, and releases the connection's slot at its end.
            self.ws_protocol_class = cast(Any, functools.partial(cast(Any, self.ws_protocol_class), on_lost=self._release_slot))
            self.handle_websocket_upgrade()
            # Break reference cycles; this object is not needed any more.
            self.scope = self.ws_protocol_class = self.parser = None  # type: ignore[assignment]
            return
        # This parser treats the request as one without a body. A new parser reads the same headers without the upgrade.
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(option for option in options if option.lower() not in _UPGRADE_HEADERS)  # noqa: PLW2901
            if name not in _UPGRADE_HEADERS:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"".join([*head, b"\r\n"]))

    def _watch_head(self) -> None:
        """Bound the time until the headers of the next request are complete, unless an earlier one is being answered.

        The rest of a body whose response is already sent has the same time limit.
        """
        if self._head_timer is not None or self._input_ended or self._is_answering():
            return
        if not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self._input_ended:
            return
        if self._in_head:
            self._refuse(refusals.HEAD_TOO_SLOW)
        else:
            # No request has started. Close without a response, which a client that sends one now could take for its own.
            self._input_ended = True
            self.transport.close()

    def _is_answering(self) -> bool:
        return bool(self.pipeline) or (self._running is not None and not self._running.response_complete)

    # --- the parser's callbacks ---

    def on_message_begin(self) -> None:
        if self._input_ended:
            # An HTTP/1.0 client with "Connection: keep-alive", which is not supported.
            raise _Refused
        self._in_head = True
        self._head_size = 0
        super().on_message_begin()
        self.scope["extensions"] = {
            WAIT_FOR_READER: {"call": self._wait_for_reader},
            DISCONNECT: {"call": self._call_on_disconnect},
            DROP: {"call": self._drop},
            HAS_BODY: {"call": self._has_body},
            WRITE: {"call": self._write_now},
        }

    def _wait_for_reader(self, key_is_good: KeyIsGood | None = None) -> None:
        """Allow a client with a valid key to read as slowly as it likes and still get everything (A100).

        ``key_is_good`` is called periodically while the response is unread; None: the key stays valid.
        """
        self._key_is_good, self._key_has_ended = key_is_good, False
        if not self._waits_for_reader:
            self._waits_for_reader = True
            _bound_sending(self.transport, 0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """Drop a client whose key is no longer valid if it leaves data unread for a whole period."""
        if self._key_is_good is not None and self._reader_timer is None and self._key_check is None:
            self._reader_timer = self.loop.call_later(self._limits.send_seconds, self._check_reader, self._key_is_good)

    def _check_reader(self, key_is_good: KeyIsGood) -> None:
        self._reader_timer = None
        if not self.transport.get_write_buffer_size():
            self._key_has_ended = False
        elif self._key_has_ended:
            # So that the kernel drops its buffered data soon, too.
            _bound_sending(self.transport, self._limits.send_seconds)
            self.transport.abort()
        else:
            self._key_check = self.loop.create_task(self._check_key(key_is_good))

    async def _check_key(self, key_is_good: KeyIsGood) -> None:
        try:
            self._key_has_ended = not await key_is_good()
        finally:
            self._key_check = None
            self._watch_reader()

    def _stop_watching_reader(self) -> None:
        self._key_is_good = None
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
        if self._key_check is not None:
            self._key_check.cancel()

    def _call_on_disconnect(self, call: Callable[[], object]) -> None:
        if self._running is None or self._running.disconnected:
            call()
            return
        self._on_disconnect = call
        # A large body has paused reading, and only a read finds the end of the connection.
        self.flow.resume_reading()

    def _has_body(self) -> bool:
        return isinstance(self._running, Cycle) and self._running.has_body()

    def _write_now(self, chunk: bytes) -> bool:
        return isinstance(self._running, Cycle) and self._running.write_now(chunk)

    def _drop(self) -> None:
        self.transport.abort()

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # A trailer. The request was checked by its headers.
            return
        self._head_size += len(name) + len(value) + 4
        if len(self.headers) >= MOST_HEADERS:
            self._stop(refusals.too_many_headers(MOST_HEADERS))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._check_head()
        if len(self.pipeline) >= MOST_PIPELINED:
            self._stop(refusals.TOO_MANY_PIPELINED)
        self._stop_head_timer()
        self._in_head, self._in_body = False, True
        version, url = self.parser.get_http_version(), httptools.parse_url(self.url)
        scope: Any = self.scope
        path = url.path.decode("ascii")
        scope.update(
            http_version=version,
            method=self.parser.get_method().decode("ascii"),
            path=urllib.parse.unquote(path) if "%" in path else path,
            raw_path=url.path,
            query_string=url.query or b"",
        )
        earlier: RequestResponseCycle | None = self.cycle
        self.cycle = Cycle(
            scope,
            self.transport,
            self.flow,
            self.server_state.default_headers,
            self.on_response_complete,
            expects_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and not self._stops and self.parser.should_keep_alive(),
        )
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        self._body_of_piece += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._stop_head_timer()
        self._in_body, self._message_ended = False, True
        if not self.cycle.keep_alive:
            self._input_ended = True

    # --- checks of request line and headers ---

    def _stop(self, problem: Problem) -> NoReturn:
        self._refusal = problem
        raise _Refused

    def _check_head(self) -> None:
        """Refuse requests that are too large, unsupported, or ambiguous to proxies (request smuggling)."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._stop(refusals.WRONG_VERSION)
        if self._head_size > self._limits.head_bytes:
            self._stop(refusals.head_too_large(self._limits.head_bytes))
        if self.parser.get_method() == b"CONNECT":
            self._stop(refusals.TUNNEL)
        hosts = codings = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings += 1
                if codings > 1 or value.lower() != b"chunked":
                    self._stop(refusals.UNKNOWN_CODING)
        if hosts > 1 or (not hosts and version == "1.1"):
            self._stop(refusals.BAD_HOST)
        if codings and version == "1.0":
            self._stop(refusals.OLD_AND_CHUNKED)
        if not self.url.startswith(b"/") or b"#" in self.url:
            self._take_absolute_form()

    def _take_absolute_form(self) -> None:
        """Split a target that is a whole URL into path and Host header (RFC 9112, section 3.2.2)."""
        if self.url == b"*" and self.parser.get_method() == b"OPTIONS":
            return
        try:
            target: Any = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:
            self._stop(refusals.BAD_TARGET)
        schema = target.schema.lower() if target.schema else b""
        if schema not in (b"http", b"https") or not target.host or target.userinfo or target.fragment is not None:
            self._stop(refusals.BAD_TARGET)
        host = b"[%s]" % target.host if b":" in target.host else target.host
        if target.port:
            host += b":%d" % target.port
        self.url = (target.path or b"/") + (b"?" + target.query if target.query else b"")
        self.headers[:] = [(b"host", host), *(header for header in self.headers if header[0] != b"host")]

    def _is_websocket(self) -> bool:
        """Whether a request starts a WebSocket. It cannot while earlier requests of its connection are being answered."""
        if self.ws_protocol_class is None or self._is_answering():
            return False
        if self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
            return False
        if self._values(b"upgrade") != [b"websocket"] or self._values(b"transfer-encoding"):
            return False
        if self._values(b"content-length") not in ([], [b"0"]):
            return False
        return urllib.parse.unquote(self.url.partition(b"?")[0].decode("latin-1")) in WEBSOCKET_PATHS

    def _check_handshake(self) -> None:
        """Refuse invalid handshakes here, because the WebSocket library would respond in plain text."""
        lines = [len(self.url) + 16, *(len(name) + len(value) + 4 for name, value in self.headers)]
        if max(lines) > _WEBSOCKET_LINE_BYTES:
            self._stop(refusals.line_too_long(_WEBSOCKET_LINE_BYTES))
        if len(self.headers) > _WEBSOCKET_HEADERS:
            self._stop(refusals.too_many_headers(_WEBSOCKET_HEADERS))
        if self._values(b"sec-websocket-version") != [b"13"]:
            self._stop(refusals.BAD_WEBSOCKET_VERSION)
        keys = [value for name, value in self.headers if name == b"sec-websocket-key"]
        try:
            key = base64.b64decode(keys[0], validate=True) if len(keys) == 1 else b""
        except binascii.Error:
            key = b""
        if len(key) != 16:
            self._stop(refusals.BAD_WEBSOCKET_KEY)

    def _values(self, header: bytes) -> list[bytes]:
        return [value.lower() for name, value in self.headers if name == header]

    # --- refusing ---

    def _refuse(self, problem: Problem) -> None:
        """Send the problem after the responses to all earlier requests, and end the connection."""
        self._input_ended = True
        self._stop_head_timer()
        access_log.info("request_refused: %d %s", problem.status, problem.detail)
        if self._in_body:
            # The body of the newest request will not be complete.
            broken = self.cycle
            waiting = [entry for entry in self.pipeline if entry[0] is not broken]
            if len(waiting) < len(self.pipeline):
                self.pipeline.clear()
                self.pipeline.extend(waiting)
            elif not broken.response_complete:
                broken.disconnected = True
                broken.message_event.set()
                if broken.response_started:
                    self.transport.close()
                    return
                self._running = None
        if self._is_answering():
            self._last_response = refusals.answer(problem)
        else:
            self._send_last(refusals.answer(problem))

    def on_response_complete(self) -> None:
        self._on_disconnect = None
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        if self._last_response is not None and not self._is_answering() and not self.transport.is_closing():
            self._send_last(self._last_response)

    def _send_last(self, response: bytes) -> None:
        """Send the last response and close, not at once: that would reset a client that still sends before it reads."""
        self._unset_keepalive_if_required()
        self._last_response = None
        self.flow.resume_reading()
        self.transport.write(response)
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._linger_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)


def _bound_sending(transport: asyncio.BaseTransport, seconds: float) -> None:
    """Let the kernel end the connection if the peer acknowledges nothing for this time; 0: the system's default.

    Only the kernel knows what the peer has received. On systems other than Linux the default always applies.
    """
    connection = transport.get_extra_info("socket")
    if hasattr(socket, "TCP_USER_TIMEOUT") and connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def _problem_of(error: httptools.HttpParserError) -> Problem:
    # The parser recognizes the connection preface of HTTP/2 clients.
    return refusals.WRONG_VERSION if "PRI/Upgrade" in str(error) else refusals.MALFORMED
