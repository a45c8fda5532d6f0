"""A POST request to an address that a tenant chose, through the guard; for webhooks.

Redirects are not followed, the answer is read up to a limit, and the whole request has a time limit.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from agents_app.outbound.guard import Guard
from agents_app.outbound.request import CONNECT_SECONDS, FetchFailed
from agents_app.outbound.target import read

SECONDS = 15.0
"""For the whole request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``body``: the start of the answer's body."""

    status: int
    body: bytes


async def post(url: str, body: bytes, headers: Mapping[str, str], guard: Guard, most: int) -> Answer:
    """Raises ``AddressRefused`` if the guard does not admit the address, ``FetchFailed`` if there is no answer."""
    # Imported when needed, as in request.py.
    import aiohttp

    from agents_app.outbound.connector import PinnedConnector

    admitted = await guard.admit(read(url))
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(
                connector=PinnedConnector(admitted),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            ) as session,
            session.post(
                admitted.target.url, data=body, headers={**headers, "Accept-Encoding": "identity"}, allow_redirects=False
            ) as response,
        ):
            return Answer(response.status, await _start(response.content, most))
    except (aiohttp.ClientSSLError, ssl.SSLError):
        raise FetchFailed("no encrypted connection: its certificate is invalid, or it does not support TLS") from None
    except aiohttp.ClientConnectorError:
        raise FetchFailed("no connection to its host") from None
    except TimeoutError:
        raise FetchFailed(f"no complete answer within {SECONDS:.0f} seconds") from None
    except (aiohttp.ClientError, OSError, ValueError):
        raise FetchFailed("its host closed the connection, or its answer is not HTTP") from None


async def _start(content: object, most: int) -> bytes:
    """At most ``most`` bytes; the connection is closed with the rest unread."""
    found = b""
    async for piece in content.iter_any():  # type: ignore[attr-defined]  # an aiohttp.StreamReader, which is not imported here
        found += piece[: most - len(found)]
        if len(found) >= most:
            break
    return found
