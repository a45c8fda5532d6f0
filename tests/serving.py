"""A real uvicorn on a real socket, and a client that controls when each byte is sent."""

from __future__ import annotations

import asyncio
import functools
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn

from agenthost.edge.connections import Connections, Limits
from agenthost.edge.protocol import HttpProtocol
from agenthost.guard import Application, Message, Receive, Scope, Send
from agenthost.websocket import WebSocket


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One TCP connection to the server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._read = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def no_delay(self) -> None:
        """Disable Nagle's algorithm, so that each piece is sent at once."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def readable(self, within: float = 0.005) -> bool:
        """Whether there is something to read, after a short wait. Without it, a client in this process starves the server."""
        return bool(select.select([self._socket], [], [], within)[0])

    def dropped(self) -> bool:
        """Whether the server closed the connection without a response."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        """Send a whole request; names of headers are written with underscores."""
        self.head(method, path, **({"content_length": str(len(body))} if body else {}), **headers)
        self.send(body)
        return self.answer(method)

    def head(self, method: str, path: str, **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", *([] if "host" in headers else ["host: testserver"])]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def answer(self, method: str = "GET") -> Answer:
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"")
        if "content-length" in headers:
            return Answer(status, headers, self._take(int(headers["content-length"])))
        body = b""
        while size := int(self._line(), 16):
            body += self._take(size)
            self._line()
        self._line()
        return Answer(status, headers, body)

    def closed(self) -> bool:
        """Wait for the server to close the connection; True if it did."""
        return not self._read and self._socket.recv(1) == b""

    def _line(self) -> bytes:
        while b"\r\n" not in self._read:
            self._more()
        line, _, self._read = self._read.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        taken, self._read = self._read[:size], self._read[size:]
        return taken

    def _more(self) -> None:
        got = self._socket.recv(65536)
        assert got, f"closed without a whole answer; had {self._read!r}"
        self._read += got


def configured(application: Application, connections: Connections, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="uvloop",
        http=cast(Any, functools.partial(HttpProtocol, open_connections=connections)),
        log_config=None,
        access_log=False,
        interface="asgi3",
        lifespan="off",
        timeout_graceful_shutdown=3,
        **{"ws": WebSocket, **options},
    )


@contextmanager
def serving(application: Application, *, limits: Limits | None = None, **options: Any) -> Iterator[int]:
    """Serve in a thread; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(configured(application, Connections(limits or Limits()), **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started and time.monotonic() < until:
        time.sleep(0.005)
    assert server.started
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()


@dataclass
class Recorder:
    """An ASGI application that reads the whole body, as Django does, and records requests."""

    seen: list[tuple[str, str, int]] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        size = 0
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        self.seen.append((scope["method"], scope["path"], size))
        self.request_ids.append(scope["agenthost"]["request_id"])
        if scope["path"] == "/aap/v3/broken":
            raise ValueError("a secret of the server")
        headers = [(b"content-type", b"text/event-stream"), (b"vary", b"Accept"), (b"x-request-id", b"mine")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
