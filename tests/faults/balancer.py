"""A small HTTP balancer that sends requests to the webs that are ready, as proxies in production do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence

from tests.faults.proxy import Proxy

EACH_SECONDS = 0.1
_HEAD_BYTES = 65536
_CONNECTION = re.compile(rb"\r\n(?:connection|keep-alive):[^\r]*", re.IGNORECASE)
_WEBSOCKET = re.compile(rb"\r\nupgrade:\s*websocket", re.IGNORECASE)
_READY = b"GET /readyz HTTP/1.1\r\nHost: balancer\r\nConnection: close\r\n\r\n"


class Balancer(Proxy):
    """One request per connection. A web that is not ready, or refuses a connection, is passed over; a request that was sent is
    never sent again, so each one that a web drops is a failure that the client sees."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        super().__init__(0)
        self.requests = self.passed_over = 0
        self.dropped: list[str] = []
        """First lines of requests that got no answer."""
        self._ports = ports
        self._ready_ports: list[int] = []
        self._unanswered: Counter[int] = Counter()
        self._turns = itertools.count()

    def has_left(self, port: int) -> bool:
        """Whether nothing more is sent to this web, and all that was sent is being answered."""
        return port not in self._ready_ports and not self._unanswered[port]

    async def _serve(self) -> None:
        await self._look()
        looking = asyncio.create_task(self._keep_looking())
        try:
            await super()._serve()
        finally:
            looking.cancel()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(EACH_SECONDS)
            await self._look()

    async def _look(self) -> None:
        ports = list(self._ports())
        answers = await asyncio.gather(*map(self._is_ready, ports))
        self._ready_ports = [port for port, ready in zip(ports, answers, strict=True) if ready]

    async def _is_ready(self, port: int) -> bool:
        try:
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(_READY)
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int] | None:
        ready = self._ready_ports
        first = next(self._turns)
        for number in range(len(ready)):
            port = ready[(first + number) % len(ready)]
            self._unanswered[port] += 1
            try:
                return *await asyncio.open_connection("127.0.0.1", port), port
            except OSError:
                self._unanswered[port] -= 1
                self.passed_over += 1
        return None

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
            return
        self.requests += 1
        line = head.partition(b"\r\n")[0].decode(errors="replace")
        if not _WEBSOCKET.search(head):
            head = _CONNECTION.sub(b"", head[:-4]) + b"\r\nConnection: close\r\n\r\n"
        found = await self._connect()
        if found is None:
            self.dropped.append(f"{line}: no web is ready")
            writer.close()
            return
        there, back, port = found
        back.write(head)
        answered = asyncio.create_task(self._answer(there, writer, line, port))
        asked = asyncio.create_task(self._copy(reader, back))
        try:
            with contextlib.suppress(asyncio.CancelledError):
                # Cancelled when the balancer ends.
                await asyncio.wait([answered, asked], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in (answered, asked):
                copy.cancel()
            for each in (writer, back):
                each.close()
            await asyncio.gather(answered, asked, return_exceptions=True)
            for each in (writer, back):
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, port: int) -> None:
        first = b""
        try:
            with contextlib.suppress(OSError):
                first = await there.read(_HEAD_BYTES)
        finally:
            self._unanswered[port] -= 1
        if not first:
            self.dropped.append(f"{line}: its web closed the connection")
            return
        with contextlib.suppress(OSError):
            writer.write(first)
            await writer.drain()
        await self._copy(there, writer)
