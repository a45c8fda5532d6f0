"""An AAP server whose answers about its one session are bytes that a test gives: for streams that no real server would send."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import parse_headers
from typing import Any

META = {
    "version": 3,
    "agents": [{"name": "bytes", "version": "1.0.0", "capabilities": {"stream": {"delta": {}, "message": {}, "none": {}}}}],
}


@dataclass(frozen=True)
class Request:
    line: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """``is_held``: the connection stays open after the pieces, until the client closes it.

    ``pause``: seconds before each piece. ``cut``: when this is set, the connection is closed.
    """

    pieces: tuple[bytes, ...]
    is_held: bool = False
    pause: float = 0
    cut: threading.Event | None = None


LOST = Answer(())
"""The connection ends without an answer."""


def document(status: int, content: Any, **headers: str) -> Answer:
    """``headers`` with underscores for hyphens."""
    body = json.dumps(content).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    return Answer((_head(status, lines), body))


def stream(
    *pieces: bytes,
    is_complete: bool = True,
    is_held: bool = False,
    pause: float = 0,
    cut: threading.Event | None = None,
) -> Answer:
    """Server-sent events. With a pause, clients get each piece for itself, unless their machine is busy for longer."""
    head = _head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return Answer((head, *chunks, *([b"0\r\n\r\n"] if is_complete else [])), is_held, pause, cut)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Given\r\nConnection: close\r\n{lines}\r\n".encode()


class ByteServer:
    """``answers`` are taken one by one for requests below the session; ``requests`` are those requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"owner": self})
        self._tcp = _Listener(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._tcp.serve_forever, name="byte-server", daemon=True)
        self._thread.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._tcp.server_address[1]}"

    def close(self) -> None:
        self._tcp.shutdown()
        self._tcp.server_close()
        self._thread.join(10)


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


class _Handler(socketserver.StreamRequestHandler):
    owner: ByteServer
    timeout = 60
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            line = self.rfile.readline().decode().strip()
            if not line:
                # A client has opened a connection that it did not need.
                return
            headers = parse_headers(self.rfile)
            body = self.rfile.read(int(headers.get("Content-Length", "0")))
            answer = self._answer(Request(line, {name.lower(): value for name, value in headers.items()}, body))
            for piece in answer.pieces:
                time.sleep(answer.pause)
                self.wfile.write(piece)
            if answer.cut is not None:
                answer.cut.wait(60)
            if answer.is_held:
                self.rfile.read(1)

    def _answer(self, request: Request) -> Answer:
        if request.line.startswith("GET /aap/v3/meta "):
            return document(200, META)
        if request.line.startswith("POST /aap/v3/sessions "):
            return document(201, {"sessionId": "one"})
        self.owner.requests.append(request)
        return self.owner.answers.pop(0) if self.owner.answers else document(404, {"title": "Not Found", "detail": "No more."})


@contextlib.contextmanager
def byte_server() -> Iterator[ByteServer]:
    server = ByteServer()
    try:
        yield server
    finally:
        server.close()
