"""Responses to requests that do not reach the application: problem documents, after which the connection closes."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from agenthost import cors
from agenthost.guard import new_request_id, refusal_headers
from sessions_app.aap import problems
from sessions_app.aap.problems import Problem

MALFORMED = Problem(400, "The request is not well-formed HTTP/1.1.")
BAD_TARGET = Problem(400, "The request target must be a path, or an http or https URL.")
BAD_HOST = Problem(400, "A request needs exactly one Host header.")
EARLY_FRAMES = Problem(400, "A WebSocket client must not send frames before the handshake is complete.")
BAD_WEBSOCKET_KEY = Problem(400, "Sec-WebSocket-Key must be one value of 16 bytes in base64.")
BAD_WEBSOCKET_VERSION = Problem(
    426,
    "Unsupported WebSocket version; the server supports version 13.",
    headers={"Sec-WebSocket-Version": "13", "Upgrade": "websocket"},
)
OLD_AND_CHUNKED = Problem(400, "Transfer-Encoding is not allowed in HTTP/1.0 requests.")
UNKNOWN_CODING = Problem(501, "Unsupported Transfer-Encoding; the server supports chunked.")
TUNNEL = Problem(501, "CONNECT is not supported; this server is not a proxy.")
WRONG_VERSION = Problem(505, "Unsupported HTTP version; this server speaks HTTP/1.1. Use a proxy in front of it for HTTP/2.")
TOO_MANY_PIPELINED = Problem(429, "Too many pipelined requests on this connection.", headers={"Retry-After": "1"})
SERVER_IS_FULL = Problem(503, "The server's connection limit is reached.", headers={"Retry-After": "5"})
HEAD_TOO_SLOW = Problem(408, "The request line and the headers did not arrive in time.")


def head_too_large(most: int) -> Problem:
    return Problem(431, f"The request line and the headers are larger than {most} bytes, the limit of this server.")


def line_too_long(most: int) -> Problem:
    return Problem(431, f"A line of the WebSocket handshake is longer than {most} bytes, the limit of this server.")


def too_many_headers(most: int) -> Problem:
    return Problem(431, f"The request has more than {most} headers, the limit of this server.")


def answer(problem: Problem) -> bytes:
    """The whole response, with the headers of every response of this server (A95, A122)."""
    request_id = new_request_id()
    content = problems.document(problem, request_id)
    headers = [
        *refusal_headers(problem, problems.CONTENT_TYPE, content),
        (b"connection", b"close"),
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        # Path and origin may be unknown or malformed.
        *cors.response_headers("", None),
    ]
    return b"".join([STATUS_LINE[problem.status], *(b"%s: %s\r\n" % header for header in headers), b"\r\n", content])
