"""The HTTP connections of all providers: one pool per event loop, closed with its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

import aiohttp

_holders: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[aiohttp.ClientSession]] = WeakKeyDictionary()
_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


async def session() -> aiohttp.ClientSession:
    """The running loop's session. It keeps no cookies: sessions of many tenants share it."""
    loop = asyncio.get_running_loop()
    found = _sessions.get(loop)
    if found is None or found.closed:
        # A loop that shuts down closes its open generators, so this one closes the connections without an
        # explicit call.
        holder = _hold()
        found = await anext(holder)
        _holders[loop], _sessions[loop] = holder, found
    return found


async def close() -> None:
    """Close the running loop's connections now."""
    loop = asyncio.get_running_loop()
    holder = _holders.pop(loop, None)
    _sessions.pop(loop, None)
    if holder is not None:
        await holder.aclose()


async def _hold() -> AsyncGenerator[aiohttp.ClientSession]:
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        # Compressed streams arrive in large pieces.
        headers={"Accept-Encoding": "identity"},
    )
    try:
        yield made
    finally:
        await made.close()
