"""AHP connections of the load generator that watch a session: cheap enough that a thousand of them do not disturb the figures."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from ops.benchmark.load import Address, LoadError, Watched
from ops.benchmark.paced_model import TOKEN

_ANSWER_SECONDS = 60.0
_BUSY_SECONDS = 1.0
_OPENED_AT_ONCE = 4
_ACTION = b'{"jsonrpc":"2.0","method":"action"'
_END = b'/turnComplete"'
_FINAL, _KIND = 0x80, 0x0F
_CONTINUATION, _TEXT, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x8, 0x9, 0xA


@dataclass(frozen=True, slots=True)
class Dialect:
    """A version of AHP, and how it names a conversation that was created over AAP."""

    version: str
    member: str
    uri: str

    def channel(self, agent: str, session: str) -> dict[str, str]:
        """The params of ``subscribe`` for the channel that has the conversation's turns."""
        return {self.member: self.uri.format(agent=agent, session=session)}


V0_1 = Dialect("0.1.0", "resource", "{agent}:/{session}")
V0_9 = Dialect("0.9.0", "channel", "ahp-chat:/{session}")
V1_0 = Dialect("1.0.0", "channel", "ahp-chat:/{session}")


def frame(kind: int, content: bytes) -> bytes:
    """A client's frame. Its mask is zero, so masking changes nothing."""
    size = len(content)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2)
    return bytes([_FINAL | kind]) + length + b"\0\0\0\0" + content


class Watcher(asyncio.Protocol):
    """One connection. ``watched`` has the arrivals of tokens; ``envelopes`` counts all envelopes."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._upgraded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._received = bytearray()
        self._text = bytearray()
        self._ended: asyncio.Future[None] | None = None
        self._lost = ""
        self._is_closing = False
        self.watched = Watched(time.monotonic())
        self.envelopes = 0

    async def open(self, key: str, dialect: Dialect, agent: str, session: str) -> None:
        """Connect and subscribe to the conversation."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            for pause in itertools.chain([0.0], itertools.repeat(_BUSY_SECONDS)):
                await asyncio.sleep(pause)
                if await self._upgrade(key):
                    break
            client = f"bench-{secrets.token_hex(6)}"
            await self._request("initialize", {"protocolVersions": [dialect.version], "clientId": client})
            await self._request("subscribe", dialect.channel(agent, session))

    async def _upgrade(self, key: str) -> bool:
        """False if the server is busy, which is no part of a figure."""
        loop = asyncio.get_running_loop()
        self._upgraded, self._received, self._is_closing = loop.create_future(), bytearray(), False
        try:
            await loop.create_connection(lambda: self, self._address.host, self._address.port)
        except OSError as error:
            raise LoadError(f"no connection to {self._address.host} port {self._address.port}: {error}") from None
        lines = [
            *("GET /ahp HTTP/1.1", f"host: {self._address.host}", "connection: upgrade", "upgrade: websocket"),
            *("sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", f"authorization: Bearer {key}"),
        ]
        self._transport.write("\r\n".join([*lines, "", ""]).encode())
        return await self._upgraded

    async def _request(self, method: str, params: Mapping[str, Any]) -> None:
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        asked = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        self._transport.write(frame(_TEXT, asked))
        if "error" in (message := await answer):
            raise LoadError(f"{method} was refused: {message['error'].get('message')}")

    def expect(self) -> None:
        """Count from now on, until a turn has ended."""
        self.watched, self.envelopes = Watched(time.monotonic()), 0
        self._ended = asyncio.get_running_loop().create_future()
        if self._lost:
            self._ended.set_exception(LoadError(self._lost))

    async def ended(self) -> None:
        assert self._ended is not None
        await self._ended

    def close(self) -> None:
        self._is_closing = True
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"an AHP connection was lost: {exc}")

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._received += data
        if not self._upgraded.done():
            head, found, rest = bytes(self._received).partition(b"\r\n\r\n")
            if not found:
                return
            if head.startswith(b"HTTP/1.1 503"):
                self.close()
                self._upgraded.set_result(False)
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self._fail(f"an AHP connection was refused: {head[:80].decode(errors='replace')}")
                return
            self._upgraded.set_result(True)
            self._received = bytearray(rest)
        received, at = self._received, 0
        while len(received) - at >= 2:
            size, start = received[at + 1], at + 2
            if size >= 126:
                start += 2 if size == 126 else 8
                size = int.from_bytes(received[at + 2 : start])
            if len(received) < start + size:
                break
            self._take(received[at], received[start : start + size], now)
            at = start + size
        del received[:at]

    def _take(self, first: int, content: bytearray, now: float) -> None:
        kind = first & _KIND
        if kind == _PING:
            self._transport.write(frame(_PONG, bytes(content)))
        elif kind == _CLOSE:
            self._fail(f"an AHP connection was closed with {int.from_bytes(content[:2])}")
        elif kind in (_TEXT, _CONTINUATION):
            if self._text or not first & _FINAL:
                self._text += content
                if not first & _FINAL:
                    return
                content, self._text = self._text, bytearray()
            self._read(content, now)

    def _read(self, text: bytearray, now: float) -> None:
        if not text.startswith(_ACTION):
            message = json.loads(text)
            if (asked := self._asked.pop(message.get("id"), None)) is not None and not asked.done():
                asked.set_result(message)
            return
        self.envelopes += 1
        if tokens := text.count(TOKEN):
            self.watched.tokens += tokens
            self.watched.arrivals.append(now)
        elif _END in text and self._ended is not None and not self._ended.done():
            self.watched.ended = now
            self._ended.set_result(None)

    def _fail(self, text: str) -> None:
        if self._is_closing:
            return
        self._lost = self._lost or text
        for waiting in (self._upgraded, self._ended, *self._asked.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(LoadError(self._lost))


@asynccontextmanager
async def watching(
    addresses: Sequence[Address], key: str, agent: str, wanted: Sequence[tuple[str, Dialect]]
) -> AsyncIterator[list[Watcher]]:
    """A watcher for each of these sessions, in this version. Spread over the server's addresses."""
    watchers: list[Watcher] = []
    left = list(enumerate(wanted))

    async def some() -> None:
        while left:
            number, (session, dialect) = left.pop()
            watchers.append(watcher := Watcher(addresses[number % len(addresses)]))
            await watcher.open(key, dialect, agent, session)

    try:
        await asyncio.gather(*(some() for _ in range(min(_OPENED_AT_ONCE, len(wanted)))))
        yield watchers
    finally:
        for watcher in watchers:
            watcher.close()
