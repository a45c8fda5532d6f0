"""Faults of MCP servers, with one text for the operator and one for models and clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agents_app.errors import AgentError
from agents_app.runtime.unicode import storable

Kind = Literal[
    "unreachable", "timeout", "refused", "forgotten", "closed", "failed", "not_mcp", "too_large", "busy", "said",
    # of programs alone
    "unavailable", "ended", "down",
]  # fmt: skip

_LONGEST_WORDS = 1_000
_NO_WORDS = "Server returned an error response"
"""The library's text for a response that has only a status."""

_FOR_CLIENTS: dict[Kind, str] = {
    "unreachable": "cannot be reached",
    "timeout": "did not answer in time",
    "refused": "does not let this session in; its credentials are missing or not accepted",
    "forgotten": "does not know this session any more",
    "closed": "closed the connection",
    "failed": "failed",
    "not_mcp": "gave an answer that cannot be understood",
    "too_large": "gave an answer that is too large",
    "busy": "has too many connections already",
    "said": "answered with an error",
    "unavailable": "cannot be started on this server",
    "ended": "has ended unexpectedly",
    "down": "has failed too often and is not started at the moment",
}


class McpFault(AgentError):
    """An MCP server cannot be used. ``detail`` is for the operator and contains no value of a header or variable.

    A fault of the kind ``said`` has the server's own message, like a tool's failure.
    """

    def __init__(self, kind: Kind, detail: str) -> None:
        self.kind, self.detail = kind, detail
        super().__init__(f"{kind}: {detail}")

    def for_clients(self, server: str) -> str:
        """The text for models and clients, without addresses and other details of the server."""
        words = f": {self.detail}" if self.kind == "said" else ""
        return f"the MCP server {server} {_FOR_CLIENTS[self.kind]}{words}"


@dataclass(slots=True)
class Seen:
    """HTTP facts of one call, or of opening a connection."""

    status: int = 0
    too_large: bool = False


def of(error: BaseException, seen: Seen) -> McpFault:
    """The fault for an exception of the library."""
    import httpx2
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    inner = list(_flat(error))
    for each in inner:
        if isinstance(each, McpFault):
            return each
    for each in inner:
        match each:
            case httpx2.TimeoutException() | TimeoutError():
                return McpFault("timeout", "it does not answer in time")
            case httpx2.TransportError():
                return _transport(each)
            case MCPError():
                return _said(each.code, each.message, seen)
            case httpx2.DecodingError():
                return McpFault("not_mcp", str(each))
            case ValidationError():
                return McpFault("not_mcp", "what it answers is not MCP")
            case RuntimeError() if "protocol version" in str(each):
                return McpFault("not_mcp", "it supports no MCP version that this server supports")
    return McpFault("failed", type(inner[0] if inner else error).__name__)


def _said(code: int, message: str, seen: Seen) -> McpFault:
    import mcp_types

    if seen.too_large or "byte limit" in message:
        return McpFault("too_large", "its answer is too large")
    if seen.status in (401, 403):
        return McpFault("refused", f"status {seen.status}: the headers are missing or not accepted")
    if 300 <= seen.status < 400:
        return McpFault("failed", f"status {seen.status}: it redirects elsewhere, which is not followed; give the address meant")
    if seen.status == 404 and message == "Not Found":
        return McpFault("not_mcp", "status 404: there is nothing at this path; the endpoint is often /mcp")
    if seen.status == 404 and code != mcp_types.METHOD_NOT_FOUND:
        return McpFault("forgotten", "it does not know this connection any more")
    if seen.status >= 400 and message == _NO_WORDS:
        return McpFault("failed", f"status {seen.status}")
    match code:
        case mcp_types.REQUEST_TIMEOUT:
            return McpFault("timeout", "it does not answer in time")
        case mcp_types.CONNECTION_CLOSED:
            return McpFault("closed", "it closed the connection")
        case mcp_types.UNSUPPORTED_PROTOCOL_VERSION:
            return McpFault("not_mcp", "it supports no MCP version that this server supports")
        case mcp_types.PARSE_ERROR:
            return McpFault("not_mcp", "what it answers is not MCP")
    if message.startswith("Unexpected content type"):
        return McpFault("not_mcp", f"it answers with {message.partition(': ')[2][:80] or 'no content type'}, which is not MCP")
    return McpFault("said", f"{storable(message)[:_LONGEST_WORDS]} ({code})")


def _transport(error: BaseException) -> McpFault:
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return McpFault("unreachable", f"TLS: its certificate is not trusted: {cause.verify_message}")
            case ssl.SSLError():
                return McpFault("unreachable", f"TLS: {cause.reason or 'the handshake failed'}")
            case socket.gaierror():
                return McpFault("unreachable", "its name is not known")
            case ConnectionRefusedError():
                return McpFault("unreachable", "the connection is refused")
            case OSError() if cause.strerror:
                return McpFault("unreachable", cause.strerror)
    return McpFault("unreachable", type(error).__name__)


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _flat(each)
    else:
        yield error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    left = [error]
    while left:
        each = left.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [*each.exceptions] if isinstance(each, BaseExceptionGroup) else []
        left += [each.__cause__, each.__context__]
