"""The body of an SSE answer: what a session's feed says, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sessions_app.aap.stream import KEEP_ALIVE, RunEnd, SSEEncoder
from sessions_app.core import draining, feed
from sessions_app.core.errors import PositionPruned
from sessions_app.core.journal.types import Event

_DRAIN_LOOK = 1.0
"""How long a stream without an end of its own takes to notice that its process is going away."""


async def body(
    tenant: int, session: int, after: int, encoder: SSEEncoder, end: RunEnd, keep_alive: float, opening: bytes = b""
) -> AsyncIterator[bytes]:
    """``opening`` goes out at once, then the events after ``after``, all that have arrived as one chunk.

    After ``keep_alive`` seconds without a word a comment goes out. A position that is lost under way ends the
    stream without a ``turn_stop``: the client joins again and is told.
    """
    if opening:
        yield opening
    now = asyncio.get_running_loop().time
    quiet_until = now() + keep_alive
    try:
        async with feed.follow(tenant, session, after) as reader:
            over = False
            while not over:
                patience = max(0.0, quiet_until - now())
                events = await reader.next(timeout=min(patience, _DRAIN_LOOK) if end.follows else patience)
                chunk, over = _encoded(events or [], encoder, end)
                # A stream that waits for turns to come would hold up this process' end.
                over = over or (end.follows and not end.inside and draining.begun())
                if not chunk and not over and now() >= quiet_until:
                    chunk = KEEP_ALIVE
                if chunk:
                    yield chunk
                    quiet_until = now() + keep_alive
    except PositionPruned:
        return


def _encoded(events: list[Event], encoder: SSEEncoder, end: RunEnd) -> tuple[bytes, bool]:
    pieces = []
    for event in events:
        pieces.append(encoder.encode(event))
        if end.reached(event):
            return b"".join(pieces), True
    return b"".join(pieces), False
