"""Responses to requests that do not reach the application. Each is a problem document, and the last of its connection."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from agenthost import cors
from agenthost.guard import new_request_id
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem

MALFORMED = Problem(400, "The request is not well-formed HTTP/1.1.")
BAD_TARGET = Problem(400, "The request target is not a path, nor an http or https URL.")
BAD_HOST = Problem(400, "A request needs exactly one Host header.")
EARLY_FRAMES = Problem(400, "A WebSocket client must wait for the answer to its handshake before it sends frames.")
BAD_WEBSOCKET_KEY = Problem(400, "Sec-WebSocket-Key must be one value of 16 bytes in base64.")
BAD_WEBSOCKET_VERSION = Problem(
    426, "Only WebSocket version 13 is spoken here.", headers={"Sec-WebSocket-Version": "13", "Upgrade": "websocket"}
)
OLD_AND_CHUNKED = Problem(400, "HTTP/1.0 has no Transfer-Encoding.")
UNKNOWN_CODING = Problem(501, "The only Transfer-Encoding taken is chunked.")
TUNNEL = Problem(501, "This server is no proxy: CONNECT is not served.")
WRONG_VERSION = Problem(505, "This server speaks HTTP/1.1. In front of it, a proxy may offer HTTP/2.")
TOO_MANY_AHEAD = Problem(429, "Too many requests were sent ahead of their answers.", headers={"Retry-After": "1"})
SERVER_IS_FULL = Problem(503, "The server has no room for another connection.", headers={"Retry-After": "5"})
HEAD_TOO_SLOW = Problem(408, "The request line and the headers did not arrive in time.")


def head_too_large(most: int) -> Problem:
    return Problem(431, f"The request line and the headers are larger than {most} bytes, the most this server takes.")


def line_too_long(most: int) -> Problem:
    return Problem(431, f"A line of the WebSocket handshake is longer than {most} bytes, the most this server takes.")


def too_many_headers(most: int) -> Problem:
    return Problem(431, f"The request has more than {most} headers.")


def answer(problem: Problem) -> bytes:
    """The whole response, with the headers of every answer of this server (A95, A122)."""
    request_id = new_request_id()
    content = problems.document(problem, request_id)
    headers = [
        (b"content-type", problems.CONTENT_TYPE.encode()),
        (b"content-length", b"%d" % len(content)),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        # Neither path nor origin is known for certain.
        *cors.of_answer("", None),
    ]
    return b"".join([STATUS_LINE[problem.status], *(b"%s: %s\r\n" % header for header in headers), b"\r\n", content])
