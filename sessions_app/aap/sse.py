"""The body of an SSE answer: a session's events while they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack

from sessions_app.aap.stream import KEEP_ALIVE, KEY_ENDED, RunEnd, SSEEncoder, may_end_key
from sessions_app.core.base import byte_budget, draining
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.log import feed
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import key_watch
from sessions_app.core.tenancy.key_watch import Slot


async def body(
    slot: Slot, session: int, after: int, encoder: SSEEncoder, end: RunEnd, keep_alive: float, opening: bytes = b""
) -> AsyncGenerator[bytes]:
    """Yield ``opening``, then the events after ``after``; events that have arrived together are one chunk.

    After ``keep_alive`` seconds without events it yields a comment. The stream ends without a ``turn_stop`` if its
    position was deleted meanwhile (the client joins again and gets the error), if the caller's key ends, or if the
    tenant's unread answers leave no room for a large chunk.
    """
    now = asyncio.get_running_loop().time
    with ExitStack() as stack, key_watch.watching(slot) as key:
        if opening:
            yield opening
        quiet_until = now() + keep_alive
        try:
            async with feed.follow(slot.caller.tenant, session, after) as reader:
                key.on_end(reader.interrupt)
                # A stream that waits for later turns would delay the shutdown.
                stack.enter_context(draining.listening(reader.nudge))
                over, unread = False, 0
                while not over:
                    events = await reader.next(timeout=max(0.0, quiet_until - now()))
                    if any(may_end_key(event) for event in events or []):
                        await key.check()
                    if key.ended:
                        yield KEY_ENDED
                        return
                    chunk, over = _encoded(events or [], encoder, end)
                    del events
                    over = over or (end.follows and not end.inside and draining.is_draining())
                    if not chunk and not over and now() >= quiet_until:
                        chunk = KEEP_ALIVE
                    if chunk:
                        # The server takes a chunk when the client has read most of the previous one.
                        if not byte_budget.hold(unread + len(chunk)):
                            return
                        yield chunk
                        unread = len(chunk)
                        byte_budget.hold(unread)
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
