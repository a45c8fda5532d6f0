"""Serves the proxy of one sandbox: accepts its connections, applies policy and limits, and reports each connection.

Nothing is accepted without a slot: what a program opens beyond its share waits in the sandbox's own kernel queue, and then gets
the answer 503. So a flood of connections costs the sandbox that makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus

from agents_app.fair.rates import Rates
from agents_app.fair.slots import FairSlots
from agents_app.outbound.proxy import relay
from agents_app.outbound.proxy.reach import NotReachable, Reach
from agents_app.outbound.proxy.relay import Asked, Malformed, NoConnection, Streams
from agents_app.outbound.target import Target
from agents_app.tools.caller import fair_key

log = logging.getLogger(__name__)

HEAD_SECONDS = 20.0
SLOT_SECONDS = 15.0
IDLE_SECONDS = 300.0
_ENDING_SECONDS = 1.0
_TRY_AGAIN = 0.5
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

BYTES = "AGENTHOST_SANDBOX_NETWORK_BYTES"
CONNECTIONS = "AGENTHOST_SANDBOX_NETWORK_CONNECTIONS"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one sandbox. ``bytes``: sent and received in total. ``per_second``: new connections; as many may come at once."""

    connections: int = 64
    per_second: float = 50.0
    bytes: int = 10 * 1024**3
    idle_seconds: float = IDLE_SECONDS


class Shared:
    """What the proxies of one event loop share: slots for connections, and the rate of each owner."""

    def __init__(self, connections: int, bytes_per_second: float) -> None:
        self.slots = FairSlots(connections)
        self.rates = Rates(bytes_per_second)
        self._proxies: dict[Hashable, int] = {}

    def join(self, owner: Hashable) -> None:
        self._proxies[owner] = self._proxies.get(owner, 0) + 1

    def leave(self, owner: Hashable) -> None:
        self._proxies[owner] -= 1
        if not self._proxies[owner]:
            del self._proxies[owner]
            self.rates.forget(owner)


@dataclass(slots=True)
class Connection:
    """What one connection of a program was. ``refused``: why it was not made; empty if it was."""

    target: Target | None = None
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    refused: str = ""


class Refused(Exception):
    """The program gets this answer instead of a connection."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Proxy:
    """The proxy of one sandbox. ``shared`` returns that of the running loop; ``owner``: by whom shares are counted.

    ``report`` is called at the end of each connection.
    """

    def __init__(
        self,
        reach: Reach,
        shared: Callable[[], Shared],
        owner: Hashable,
        *,
        limits: Limits | None = None,
        report: Callable[[Connection], None],
    ) -> None:
        self._reach, self._find_shared, self._owner, self._report = reach, shared, owner, report
        self._limits = limits or Limits()
        self._rates = Rates(self._limits.per_second)
        self._used = 0
        self._accepting: asyncio.Task[None] | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._fewer = asyncio.Event()

    def open(self, listener: socket.socket) -> None:
        """Serve a listening socket, which is now this object's. Called once, on the loop."""
        self._shared = self._find_shared()
        self._shared.join(self._owner)
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all(listener), name="proxy of a sandbox")
        self._accepting.add_done_callback(lambda _: listener.close())

    def close(self) -> None:
        """Cut all connections. Called once, on the loop, after ``open``."""
        assert self._accepting is not None
        self._accepting.cancel()
        # Not now: a task that is cancelled before its first step never runs, and its slot would stay taken.
        asyncio.get_running_loop().call_soon(self._cut)

    def _cut(self) -> None:
        for task in self._open:
            task.cancel()
        self._shared.leave(self._owner)

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await _acceptable(loop, listener)
            has_slot = await self._slot()
            try:
                program, _ = listener.accept()
            except OSError as error:
                if has_slot:
                    self._shared.slots.give_back(self._owner)
                if error.errno in _NO_DESCRIPTORS:
                    log.warning("sandbox_network_no_descriptors: %s", error.strerror)
                await asyncio.sleep(_TRY_AGAIN if error.errno in _NO_DESCRIPTORS else 0)
                continue
            program.settimeout(0)
            task = loop.create_task(self._serve(program, has_slot=has_slot), name="connection of a sandbox")
            self._open.add(task)
            task.add_done_callback(self._ended)
            await self._rates.take(None, 1)

    async def _slot(self) -> bool:
        """Whether the next connection got a slot in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLOT_SECONDS):
                while len(self._open) >= self._limits.connections:
                    self._fewer.clear()
                    await self._fewer.wait()
                await self._shared.slots.take(self._owner)
                return True
        return False

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._fewer.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sandbox_network_failed: %s", type(error).__name__)

    async def _serve(self, program: socket.socket, *, has_slot: bool) -> None:
        loop = asyncio.get_running_loop()
        connection, began = Connection(), loop.time()
        fair_key.set(self._owner)
        try:
            # One side may cut the connection, or both be idle.
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await relay.streams(program)
                try:
                    await self._answered(connection, reader, writer, has_slot=has_slot)
                    await relay.closed(writer)
                finally:
                    writer.transport.abort()
        finally:
            if has_slot:
                self._shared.slots.give_back(self._owner)
            connection.seconds = loop.time() - began
            if connection.target is not None or connection.refused:
                self._report(connection)

    async def _answered(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, has_slot: bool
    ) -> None:
        try:
            if not has_slot:
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"too many connections are open: this sandbox may have {self._limits.connections}, "
                    f"and its tenant half of those of this server ({CONNECTIONS})",
                )
            async with asyncio.timeout(HEAD_SECONDS):
                what = await relay.asked(reader)
            if what is None:
                return
            connection.target = what.target
            await self._passed_on(connection, what, reader, writer)
        except Malformed as error:
            connection.refused = "the request cannot be read"
            await _refuse(reader, writer, HTTPStatus.BAD_REQUEST, str(error))
        except Refused as refusal:
            connection.refused = refusal.reason
            await _refuse(reader, writer, refusal.status, refusal.reason)

    async def _passed_on(
        self, connection: Connection, what: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._used >= self._limits.bytes:
            raise Refused(HTTPStatus.FORBIDDEN, self._spent())
        try:
            admitted = await self._reach.admit(what.target)
            host = await relay.connected(admitted)
        except NotReachable as refusal:
            raise Refused(HTTPStatus.FORBIDDEN, refusal.reason) from None
        except TimeoutError:
            raise Refused(HTTPStatus.GATEWAY_TIMEOUT, "the host's name could not be looked up in time") from None
        except NoConnection as error:
            raise _bad_gateway(error) from None
        try:
            async with asyncio.timeout(self._limits.idle_seconds) as patience:
                streams = Streams((reader, writer), host, self._counting(connection, patience))
                if what.is_tunnel:
                    await streams.tunnel(what.early)
                else:
                    await streams.exchange(what)
                await relay.closed(host[1])
        except NoConnection as error:
            raise _bad_gateway(error) from None
        finally:
            host[1].transport.abort()

    def _counting(self, connection: Connection, patience: asyncio.Timeout) -> relay.Take:
        loop = asyncio.get_running_loop()

        async def take(sent: int, received: int) -> None:
            connection.sent += sent
            connection.received += received
            self._used += sent + received
            if self._used > self._limits.bytes:
                connection.refused = self._spent()
                raise relay.Cut(None, connection.refused)
            # Without limit while it waits for its share.
            patience.reschedule(None)
            await self._shared.rates.take(self._owner, sent + received)
            patience.reschedule(loop.time() + self._limits.idle_seconds)

        return take

    def _spent(self) -> str:
        return f"this sandbox has sent and received {self._limits.bytes:,} bytes, which is the limit ({BYTES})"


def _bad_gateway(error: NoConnection) -> Refused:
    return Refused(HTTPStatus.GATEWAY_TIMEOUT if error.late else HTTPStatus.BAD_GATEWAY, str(error))


async def _acceptable(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    """Returns when a program has connected. Not `sock_accept`: it would accept before there is a slot."""
    ready = asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: HTTPStatus, reason: str) -> None:
    """Answer with the reason: as the phrase too, which pip and curl show where they show no body."""
    text = f"Agenthost: {reason}\n".encode("ascii", "replace")
    phrase = f"{status.phrase}: {reason}".encode("ascii", "replace")
    head = (
        b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n"
        b"Proxy-Status: agenthost; error=%b\r\n\r\n"
    )
    error = b"connection_limit_reached" if status == HTTPStatus.SERVICE_UNAVAILABLE else b"http_request_denied"
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ENDING_SECONDS):
            writer.write(head % (status, phrase, len(text), error) + text)
            await writer.drain()
            writer.write_eof()
            # A connection that is closed with unread data is reset, and the program would not see the answer.
            while await reader.read(relay.READ_BYTES):
                pass
