"""The HTTP client of one MCP connection: limited responses, no proxies, no shared cookies, statuses recorded."""

from __future__ import annotations

import contextvars
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx2

from agents_app import tracing
from agents_app.mcp.access import Access
from agents_app.mcp.faults import Seen

_WRITE_SECONDS = 30.0
_KEPT_ALIVE_SECONDS = 60.0

watching: contextvars.ContextVar[Seen | None] = contextvars.ContextVar("watching", default=None)
"""Set by each request's sender; the library sends each message in its sender's context."""


class TooLarge(httpx2.StreamError):
    """A response exceeds the size limit. It fails that response, not its connection."""

    def __init__(self) -> None:
        super().__init__("the answer is larger than allowed")


@cache
def _trust() -> ssl.SSLContext:
    # Loading the certificates takes longer than a call; all connections share them.
    return ssl.create_default_context()


def client(access: Access) -> httpx2.AsyncClient:
    """A client for this access only, without redirects to other origins."""
    transport = httpx2.AsyncHTTPTransport(
        verify=_trust(), trust_env=False, limits=httpx2.Limits(keepalive_expiry=_KEPT_ALIVE_SECONDS)
    )
    return httpx2.AsyncClient(
        transport=_Watched(transport, access.answer_bytes),
        # A compressed response could be larger than its length shows.
        headers={"accept-encoding": "identity", "user-agent": "agenthost", **access.headers},
        # The caller limits the time of a call; a stream may be silent for any time.
        timeout=httpx2.Timeout(None, connect=access.connect, write=_WRITE_SECONDS),
        trust_env=False,
    )


class _Watched(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner, self._limit = inner, limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        seen = watching.get()
        if seen is not None and (own := tracing.context()) is not None:
            request.headers.update(own.headers)
        response = await self._inner.handle_async_request(request)
        if seen is not None and request.method == "POST" and response.status_code >= 300:
            seen.status = response.status_code
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the response is compressed, although the request did not allow that")
        # A stream of events may last for any time; the library limits each event.
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return response
        response.stream = _Bounded(response.stream, self._limit, seen)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, seen: Seen | None) -> None:
        self._inner, self._left, self._seen = inner, limit, seen

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                if self._seen is not None:
                    self._seen.too_large = True
                raise TooLarge
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
