"""One connection of a program through the proxy: a tunnel, or one HTTP request.

A connection carries one request. What follows it is neither read nor passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address

import h11

from agents_app.outbound.guard import Admitted
from agents_app.outbound.target import AddressRefused, Target, read

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 30.0
READ_BYTES = 64 * 1024
BUFFER_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024

Take = Callable[[int, int], Awaitable[None]]
"""Called with the bytes that the program has sent and received, before they are passed on; waits while there is no room."""

# Of one connection, not of the message.
_OF_THE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"te", b"upgrade"}
)
_AUTHORITY = re.compile(r"[^\s/?#@\\]+:[0-9]{1,5}", re.ASCII)
_ABSOLUTE = re.compile(r"[A-Za-z]+://[^/?#]*(?P<rest>[^#]*)", re.ASCII)


class Malformed(Exception):
    """The program's request cannot be read. The text is for the program."""


class Cut(OSError):
    """The connection is at a limit."""


class NoConnection(Exception):
    """The host cannot be reached, or does not speak HTTP. ``late``: it did not answer in time."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


@dataclass(frozen=True, slots=True)
class Asked:
    """A program's request. ``early``: what came behind the head of a CONNECT."""

    inbound: h11.Connection
    request: h11.Request
    target: Target
    early: bytes = b""

    @property
    def is_tunnel(self) -> bool:
        return self.request.method == b"CONNECT"


async def asked(reader: asyncio.StreamReader) -> Asked | None:
    """The request at the beginning of a connection; None if the program closes it without one."""
    inbound = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    try:
        request = await _next(inbound, reader)
        if isinstance(request, h11.ConnectionClosed):
            return None
        assert isinstance(request, h11.Request)
        if request.method != b"CONNECT":
            return Asked(inbound, request, _plain(request))
        # The end of a message without a body, then nothing that this library reads.
        while inbound.next_event() is not h11.PAUSED:
            pass
        return Asked(inbound, request, _tunnelled(request), inbound.trailing_data[0])
    except h11.RemoteProtocolError as error:
        raise Malformed(f"the request cannot be read: {error}") from None
    except AddressRefused as refusal:
        raise Malformed(refusal.reason) from None


def _tunnelled(request: h11.Request) -> Target:
    authority = request.target.decode("ascii", "replace")
    if not _AUTHORITY.fullmatch(authority):
        raise Malformed("CONNECT needs a host and a port, such as example.com:443")
    return read(f"https://{authority}/")


def _plain(request: h11.Request) -> Target:
    url = request.target.decode("ascii", "replace")
    if url.lower().startswith("https:"):
        raise Malformed("https addresses are reached by CONNECT")
    if not _ABSOLUTE.fullmatch(url):
        raise Malformed("this is an HTTP proxy: the request needs a whole address, such as http://example.com/path")
    return read(url)


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(READ_BYTES))
    return event


async def connected(admitted: Admitted) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to one of exactly the admitted addresses."""
    late = False
    for address in admitted.addresses:
        made = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            made.settimeout(0)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (str(address), admitted.target.port))
            if ip_address(made.getpeername()[0]) != address:
                raise OSError(None, "connected to an address that was not checked")
        except (OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            made.close()
        except BaseException:
            made.close()
            raise
        else:
            return await streams(made)
    raise NoConnection("the host did not answer in time" if late else "no connection to the host", late=late)


async def streams(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of a connection, which then owns the socket."""
    try:
        return await asyncio.open_connection(sock=connection, limit=BUFFER_BYTES)
    except BaseException:
        connection.close()
        raise


async def closed(writer: asyncio.StreamWriter) -> None:
    """Send what is left, and close."""
    writer.close()
    async with asyncio.timeout(CLOSE_SECONDS):
        await writer.wait_closed()


class Streams:
    """Both connections of a request: the program's and the host's."""

    def __init__(
        self,
        program: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        host: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        take: Take,
    ) -> None:
        self._from_program, self._to_program = program
        self._from_host, self._to_host = host
        self._take = take

    async def tunnel(self, early: bytes) -> None:
        """Pass on bytes until both sides have ended, or one is cut."""
        self._to_program.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if early:
            await self._send(early)
        both = [asyncio.ensure_future(self._all_sent()), asyncio.ensure_future(self._all_received())]
        try:
            await asyncio.gather(*both)
        finally:
            await _cancelled(both)

    async def exchange(self, what: Asked) -> None:
        """Pass on one request and its answer. ``NoConnection`` if the host does not answer with HTTP."""
        outbound = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        both = [
            asyncio.ensure_future(self._request(what, outbound)),
            asyncio.ensure_future(self._answer(what.inbound, outbound)),
        ]
        try:
            await asyncio.gather(*both)
        except (h11.RemoteProtocolError, Malformed) as error:
            if what.inbound.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                if isinstance(error, Malformed):
                    raise
                raise NoConnection("the host's answer is not HTTP, or its head is too long") from None
            # In the middle of an answer: the program sees that it is incomplete, because the connection is cut.
        finally:
            await _cancelled(both)

    async def _send(self, data: bytes) -> None:
        await self._take(len(data), 0)
        self._to_host.write(data)
        await self._to_host.drain()

    async def _receive(self, data: bytes) -> None:
        await self._take(0, len(data))
        self._to_program.write(data)
        await self._to_program.drain()

    async def _all_sent(self) -> None:
        while data := await self._from_program.read(READ_BYTES):
            await self._send(data)
        self._to_host.write_eof()

    async def _all_received(self) -> None:
        while data := await self._from_host.read(READ_BYTES):
            await self._receive(data)
        self._to_program.write_eof()

    async def _request(self, what: Asked, outbound: h11.Connection) -> None:
        url = what.target.url
        match = _ABSOLUTE.fullmatch(what.request.target.decode("ascii"))
        rest = match["rest"] if match else ""
        headers = [(b"Host", url.raw_authority.encode()), *_kept(what.request.headers), (b"Connection", b"close")]
        headers = [headers[0], *(each for each in headers[1:] if each[0].lower() != b"host")]
        path = rest if rest.startswith("/") else "/" + rest
        head = outbound.send(h11.Request(method=what.request.method, target=path.encode(), headers=headers))
        # A host may answer before it has read all, and close: then its answer counts.
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            await self._send(head or b"")
            while isinstance(event := await self._more(what.inbound), h11.Data):
                await self._send(outbound.send(event) or b"")
            if isinstance(event, h11.EndOfMessage):
                await self._send(outbound.send(event) or b"")

    async def _more(self, inbound: h11.Connection) -> object:
        try:
            return await _next(inbound, self._from_program)
        except h11.RemoteProtocolError as error:
            raise Malformed(f"the request cannot be read: {error}") from None

    async def _answer(self, inbound: h11.Connection, outbound: h11.Connection) -> None:
        while True:
            event = await _next(outbound, self._from_host)
            if isinstance(event, h11.InformationalResponse):
                await self._receive(inbound.send(h11.InformationalResponse(status_code=event.status_code, headers=[])) or b"")
            elif isinstance(event, h11.Response):
                headers = [*_kept(event.headers), (b"Connection", b"close")]
                answer = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                await self._receive(inbound.send(answer) or b"")
            elif isinstance(event, h11.Data | h11.EndOfMessage):
                await self._receive(inbound.send(event) or b"")
                if isinstance(event, h11.EndOfMessage):
                    return
            else:
                return


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without those that belong to one connection."""
    all_of_them = list(headers)
    dropped = set(_OF_THE_CONNECTION)
    for name, value in all_of_them:
        if name == b"connection":
            dropped.update(each.strip().lower() for each in value.split(b","))
    # The length and coding of the body are kept, whatever a header names.
    dropped -= {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in all_of_them if name not in dropped]
