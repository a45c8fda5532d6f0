"""A GET request to an address that a model wrote; the guard checks each redirect.

It sends no cookies, credentials or referrer and uses no proxy from the environment. Redirects are followed here, not by the
library, because each is a new address to check.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from agents_app.errors import AgentError
from agents_app.outbound.guard import Admitted, Guard
from agents_app.outbound.target import AddressRefused, Target, follow, read

if TYPE_CHECKING:
    import aiohttp

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0

_HEADERS = {
    "User-Agent": "Agenthost (fetch_url)",
    "Accept": "text/html, application/xhtml+xml, text/plain, application/json, application/xml;q=0.9, */*;q=0.1",
    # body.py decompresses these itself, piece by piece.
    "Accept-Encoding": "gzip, deflate",
}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchFailed(AgentError):
    """There is no usable response. ``reason`` can be shown to a model."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the last hop. ``content`` is not decompressed."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: aiohttp.StreamReader

    @property
    def reason(self) -> str:
        """The status with its standard phrase instead of the server's."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)


@asynccontextmanager
async def get(url: str, guard: Guard) -> AsyncIterator[Answer]:
    """The response, with its connection open during the block. Raises ``AddressRefused`` or ``FetchFailed``."""
    target = read(url)
    admitted = await guard.admit(target)
    for _ in range(MAX_REDIRECTS + 1):
        async with _asked(admitted) as response:
            location = response.headers.get("Location") if response.status in _REDIRECTS else None
            if location is None:
                yield Answer(str(target.url), response.status, response.headers, response.content)
                return
        try:
            following = _next(target, location)
            admitted = await guard.admit(following)
        except AddressRefused:
            # The other host chose the redirect's target, so the error does not describe it.
            raise AddressRefused("it redirects to an address that may not be fetched") from None
        if target.secure and not following.secure:
            raise FetchFailed("it redirects from https to http, which is not followed")
        target = following
    raise FetchFailed(f"it redirects more than {MAX_REDIRECTS} times")


@asynccontextmanager
async def _asked(admitted: Admitted) -> AsyncIterator[aiohttp.ClientResponse]:
    # Imported when needed: web processes describe the tool and never fetch.
    import aiohttp

    from agents_app.outbound.connector import PinnedConnector

    try:
        async with (
            aiohttp.ClientSession(
                connector=PinnedConnector(admitted),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
            ) as session,
            session.get(admitted.target.url, allow_redirects=False, headers=_HEADERS) as response,
        ):
            yield response
    except (aiohttp.ClientSSLError, ssl.SSLError):
        raise FetchFailed("no encrypted connection to its host: its certificate is invalid, or it does not support TLS") from None
    except aiohttp.ClientConnectorError:
        raise FetchFailed("no connection to its host") from None
    except TimeoutError:
        raise FetchFailed("its host did not answer in time") from None
    # ValueError: a header or status line that the library rejects.
    except (aiohttp.ClientError, OSError, ValueError):
        raise FetchFailed("its host closed the connection, or its answer is not HTTP") from None


def _next(target: Target, location: str) -> Target:
    # Headers are bytes; most servers use UTF-8.
    return follow(target, location.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
