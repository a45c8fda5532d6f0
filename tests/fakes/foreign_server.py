"""A server of AAP version 3 that is none of ours: it keeps to the protocol, and adds nothing to it.

No event ids, no joining, no cancel, no idempotency. What it answers next can be said by a test, as a whole HTTP answer.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

META = {
    "version": 3,
    "agents": [{"name": "stranger", "version": "2.0.0", "capabilities": {"stream": {"delta": {}}, "history": {"full": {}}}}],
}


class ForeignServer:
    """``answers`` are taken one by one: (status, headers, body); a body of None cuts the connection. Then come its own."""

    def __init__(self) -> None:
        self.meta: Any = META
        self.answers: list[tuple[int, dict[str, str], bytes | None]] = []
        self.turns: list[dict[str, Any]] = []
        self.also: dict[str, Any] = {}
        """What stands in ``turn_stop`` beside the reason."""
        self.cut_after: int | None = None
        """How many events of a turn are sent before its connection ends."""
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/protocol"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    owner: ForeignServer

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/protocol/meta":
            self._json(200, self.owner.meta)
        elif self.path.startswith("/protocol/sessions/one/history"):
            told = [message for turn in self.owner.turns for message in turn["messages"]]
            self._json(200, {"history": {"full": told}})
        else:
            self._json(404, {"error": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        if self.owner.answers:
            status, headers, content = self.owner.answers.pop(0)
            if content is None:
                self.close_connection = True
                return
            self._send(status, {"Content-Length": str(len(content)), **headers}, content)
        elif self.path == "/protocol/sessions":
            self._json(201, {"sessionId": "one"})
        elif self.path == "/protocol/sessions/one/turns":
            self.owner.turns.append(body)
            self._turn(body)
        else:
            self._json(404, {"error": "not found"})

    def _turn(self, body: dict[str, Any]) -> None:
        words = ["you ", "said: ", str(body["messages"][-1].get("content"))]
        events = [
            ("turn_start", {}),
            *(("text_delta", {"delta": word}) for word in words),
            ("turn_stop", {"stopReason": "end_turn", **self.owner.also}),
        ]
        self._send(200, {"Content-Type": "text/event-stream"}, b"")
        for name, data in events[: self.owner.cut_after]:
            # Other servers end lines as the standard allows, too.
            self.wfile.write(f"event:{name}\r\ndata:{json.dumps(data)}\r\n\r\n".encode())
        self.close_connection = True

    def _json(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self._send(status, {"Content-Type": "application/json", "Content-Length": str(len(content))}, content)

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def foreign_server() -> Iterator[ForeignServer]:
    server = ForeignServer()
    try:
        yield server
    finally:
        server.close()
