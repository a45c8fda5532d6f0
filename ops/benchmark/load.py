"""Load generator: cheap HTTP connections that record when tokens arrive, and groups of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from ops.benchmark.paced_model import TOKEN, tokens_of

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_DELTA = re.compile(rb'"(?:content|delta)":\s*"[^"]')
_CHUNKED = re.compile(rb"transfer-encoding:\s*chunked", re.IGNORECASE)
_EVENTS = re.compile(rb"content-type:\s*text/event-stream", re.IGNORECASE)
_END = b"\r\n0\r\n\r\n"
_ANSWER_SECONDS = 300.0


class LoadError(Exception):
    """The server did not do the work that was to be measured, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server. ``path`` is what its endpoints' paths begin with."""

    host: str
    port: int
    path: str = ""
    tls: bool = False


def local(port: int, path: str = "") -> Address:
    return Address("127.0.0.1", port, path)


@dataclass(slots=True)
class Watched:
    """A stream as its client saw it: the time of the request, and of each read that had tokens."""

    asked: float
    arrivals: list[float] = field(default_factory=list)
    tokens: int = 0
    ended: float = 0.0

    @property
    def first(self) -> float:
        return self.arrivals[0] - self.asked

    @property
    def gaps(self) -> list[float]:
        return [later - sooner for sooner, later in itertools.pairwise(self.arrivals)]


def request(method: str, address: Address, path: str, key: str, body: dict[str, Any] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {address.path}{path} HTTP/1.1", f"host: {address.host}", f"content-length: {len(content)}"]
    if key:
        lines.append(f"authorization: Bearer {key}")
    if content:
        lines.append("content-type: application/json")
    return "\r\n".join([*lines, "", ""]).encode() + content


class TokenCount:
    """Counts the scripted model's tokens in a stream, however it is cut into reads."""

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> int:
        # The last five bytes of the read before are never a whole token.
        text = self._tail + data
        self._tail = text[-5:]
        return text.count(TOKEN)


class DeltaCount:
    """Counts the pieces of text of a model whose tokens are not known, in chat completions and in AAP's deltas."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return sum(_DELTA.search(line) is not None for line in lines)


class TokenCounter(Protocol):
    """Counts the tokens of one stream."""

    def feed(self, data: bytes) -> int: ...


class Connection(asyncio.Protocol):
    """One persistent connection, one request at a time. Parses only as much as the figures need."""

    def __init__(self, address: Address | None = None, counter: Callable[[], TokenCounter] = TokenCount) -> None:
        self._address = address
        self._counter = counter
        self._counted: TokenCounter = counter()
        self._received = bytearray()
        self._answered: asyncio.Future[bytes] | None = None
        self._watched: Watched | None = None
        self._head = b""
        self._tail = b""
        self._lost = False

    @classmethod
    async def open(cls, address: Address, counter: Callable[[], TokenCounter] = TokenCount) -> Connection:
        connection = cls(address, counter)
        await connection._connect(address)
        return connection

    async def _connect(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, address.host, address.port, ssl=address.tls or None)
        except OSError as error:
            raise LoadError(f"no connection to {address.host} port {address.port}: {error}") from None

    def close(self) -> None:
        self._transport.close()

    async def ask(self, asked: bytes) -> bytes:
        """Send a request and return the body of the response; LoadError if its status is not 2xx."""
        return await self._send(asked)

    async def watch(self, asked: bytes, due: float | None = None) -> Watched:
        """Send a request and record its stream of tokens until the end; its time counts from ``due`` if that is given."""
        if self._lost and self._address is not None:
            # Other servers close connections that have been idle for some seconds. This is no part of a figure.
            await self._connect(self._address)
        self._watched = watched = Watched(time.monotonic() if due is None else due)
        self._counted = self._counter()
        self._head = self._tail = b""
        await self._send(asked)
        self._watched = None
        return watched

    async def _send(self, asked: bytes) -> bytes:
        if self._lost:
            raise LoadError("a connection was closed between two requests")
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(asked)
        try:
            return await asyncio.wait_for(self._answered, _ANSWER_SECONDS)
        except TimeoutError:
            raise LoadError(f"a response did not end within {_ANSWER_SECONDS:g} s") from None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._lost = False
        self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._watched is not None and self._watched.tokens and not _CHUNKED.search(self._head):
            # The end of the connection is the end of the response.
            self._ended()
        else:
            self._fail(f"the connection was lost: {exc}")

    def data_received(self, data: bytes) -> None:
        if self._watched is None:
            self._collect(data)
            return
        if not self._head:
            self._head = data[:4096]
            if not data.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
                self._fail(data[:400].decode(errors="replace"))
                return
        tokens = self._counted.feed(data)
        if tokens:
            self._watched.arrivals.append(time.monotonic())
            self._watched.tokens += tokens
        self._tail = data[-7:] if len(data) >= 7 else (self._tail + data)[-7:]
        if self._tail == _END:
            self._ended()

    def _ended(self) -> None:
        if self._watched is not None and self._answered is not None and not self._answered.done():
            self._watched.ended = time.monotonic()
            self._answered.set_result(b"")

    def _collect(self, data: bytes) -> None:
        self._received += data
        head, found, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not found or self._answered is None or self._answered.done():
            return
        body = _body(head, rest)
        if body is not None:
            self._received.clear()
            if head[9:10] == b"2":
                self._answered.set_result(body)
            else:
                self._fail((head[:60] + b" " + body[:400]).decode(errors="replace"))

    def _fail(self, text: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(LoadError(text))


def _body(head: bytes, rest: bytes) -> bytes | None:
    """The body of a response, None while it is incomplete; of a stream of events, what has come."""
    length = _LENGTH.search(head)
    if length is not None:
        return rest if len(rest) >= int(length[1]) else None
    if _EVENTS.search(head) or not _CHUNKED.search(head):
        return rest
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found or len(rest) < int(size, 16) + 2:
            return None
        if int(size, 16) == 0:
            return body
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


@dataclass(slots=True)
class Line:
    """A connection and the request for one stream of tokens, which can be sent repeatedly."""

    connection: Connection
    asked: bytes


class Target(Protocol):
    """A server under load: its lines stream a named model's or agent's tokens."""

    async def lines(self, count: int, model: str) -> list[Line]: ...

    def check(self, watched: Sequence[Watched], tokens: int) -> None:
        """Raise LoadError unless every stream had its tokens."""


class Chat:
    """A server that speaks OpenAI's chat completions: the scripted model server itself, which is the floor, or any other."""

    def __init__(self, address: Address, key: str = "", own_model: str | None = None) -> None:
        """With ``own_model``, the server's model of this name answers, not the scripted ones, and tokens are not checked."""
        self._address, self._key, self._own_model = address, key, own_model

    async def lines(self, count: int, model: str) -> list[Line]:
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "go"}], "stream": True}
        counter: Callable[[], TokenCounter] = TokenCount
        if self._own_model is not None:
            body |= {"model": self._own_model, "max_tokens": tokens_of(model)}
            counter = DeltaCount
        asked = request("POST", self._address, "/chat/completions", self._key, body)
        return [Line(await Connection.open(self._address, counter), asked) for _ in range(count)]

    def check(self, watched: Sequence[Watched], tokens: int) -> None:
        check(watched, tokens if self._own_model is None else None)


def floor(port: int) -> Chat:
    """The scripted model server as a target."""
    return Chat(local(port, "/v1"))


class Aap:
    """A server that speaks AAP, with one agent per model. Connections are spread over its addresses and keys."""

    def __init__(self, addresses: Sequence[Address], *keys: str, own_agent: str | None = None) -> None:
        """With ``own_agent``, the server's agent of this name answers instead of those of the scripted models."""
        self._addresses, self._keys, self._own_agent = addresses, keys, own_agent
        self._opened = itertools.count()

    def check(self, watched: Sequence[Watched], tokens: int) -> None:
        check(watched, tokens if self._own_agent is None else None)

    def _key(self, number: int) -> str:
        return self._keys[number % len(self._keys)]

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None, number: int = 0) -> bytes:
        return request(method, self._addresses[0], path, self._key(number), body)

    async def connection(self) -> Connection:
        counter = TokenCount if self._own_agent is None else DeltaCount
        return await Connection.open(self._addresses[next(self._opened) % len(self._addresses)], counter)

    async def connections(self, count: int) -> list[Connection]:
        return [await self.connection() for _ in range(count)]

    def creation(self, model: str, messages: list[dict[str, Any]] | None = None, number: int = 0) -> bytes:
        seed = {"messages": messages} if messages else {}
        return self._request("POST", "/sessions", {"agent": {"name": self._own_agent or model}, **seed}, number)

    async def session(
        self, connection: Connection, model: str, messages: list[dict[str, Any]] | None = None, number: int = 0
    ) -> str:
        created: dict[str, str] = json.loads(await connection.ask(self.creation(model, messages, number)))
        return created["sessionId"]

    def turn(self, session: str, number: int = 0) -> bytes:
        body = {"messages": [{"role": "user", "content": "go"}], "stream": "delta"}
        return self._request("POST", f"/sessions/{session}/turns", body, number)

    async def start(self, session: str) -> None:
        """Start a turn and disconnect when it is accepted."""
        reader, writer = await asyncio.open_connection(self._addresses[0].host, self._addresses[0].port)
        try:
            writer.write(self.turn(session))
            head = await asyncio.wait_for(reader.readline(), _ANSWER_SECONDS)
            if b" 200 " not in head:
                raise LoadError(f"a turn was not accepted: {head.decode(errors='replace').strip()}")
        finally:
            writer.close()

    def deletion(self, session: str) -> bytes:
        return self._request("DELETE", f"/sessions/{session}")

    def get(self, path: str) -> bytes:
        return self._request("GET", f"/{path}")

    async def lines(self, count: int, model: str) -> list[Line]:
        """One session each; the keys, if there are several, in rotation."""
        lines = []
        # Each is used as soon as it is open: a server may close connections that send nothing for a while.
        for number in range(count):
            connection = await self.connection()
            lines.append(Line(connection, self.turn(await self.session(connection, model, number=number), number)))
        return lines


async def in_turn(line: Line, count: int) -> list[Watched]:
    """One stream after the other."""
    return [await line.connection.watch(line.asked) for _ in range(count)]


async def crowd(lines: Sequence[Line], turns: int, spread: float) -> list[Watched]:
    """Run all lines at the same time; their first turns start evenly over ``spread`` seconds."""

    async def one(number: int, line: Line) -> list[Watched]:
        await asyncio.sleep(spread * number / len(lines))
        return await in_turn(line, turns)

    watched = await asyncio.gather(*(one(number, line) for number, line in enumerate(lines)))
    return [each for of_line in watched for each in of_line]


async def open_loop(lines: Sequence[Line], starts: int, a_second: float) -> list[Watched]:
    """Start streams at a fixed rate. A start that finds all lines in use waits, and the wait counts as its time."""
    free: asyncio.Queue[Line] = asyncio.Queue()
    for line in lines:
        free.put_nowait(line)
    began = time.monotonic()

    async def one(number: int) -> Watched:
        due = began + number / a_second
        await asyncio.sleep(due - time.monotonic())
        line = await free.get()
        try:
            return await line.connection.watch(line.asked, due)
        finally:
            free.put_nowait(line)

    return list(await asyncio.gather(*(one(number) for number in range(starts))))


def close(lines: Sequence[Line]) -> None:
    for line in lines:
        line.connection.close()


def check(watched: Sequence[Watched], tokens: int | None) -> None:
    """Raise LoadError unless every stream had all its tokens, or any if their number is not known.

    A server that loses some has no valid figures.
    """
    wrong = [each.tokens for each in watched if (not each.tokens if tokens is None else each.tokens != tokens)]
    if wrong:
        raise LoadError(f"{len(wrong)} of {len(watched)} streams had {wrong[0]} tokens instead of {tokens or 'some'}")
