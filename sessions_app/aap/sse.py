"""The body of an SSE answer: a session's events while they happen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from sessions_app.aap.keep_alive import Quiet
from sessions_app.aap.stream import KEEP_ALIVE, KEY_ENDED, RunEnd, SSEEncoder, may_end_key
from sessions_app.core.base import byte_budget, draining
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import STREAM_KINDS
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
    with key_watch.watching(slot) as key, Quiet(keep_alive) as quiet:
        at_once = None if slot.write is None else _AtOnce(slot.write, encoder, end, quiet)
        if opening:
            yield opening
            quiet.sent()
        try:
            # A stream that waits for later turns would delay the shutdown.
            async with feed.follow(slot.caller.tenant, session, after) as reader:
                with draining.listening(reader.nudge):
                    key.on_end(reader.interrupt)
                    quiet.wake(reader.nudge)
                    over, unread = False, 0
                    while not over:
                        # A large chunk may be unread: the next one is counted in its place.
                        reader.at_once = None if at_once is None or unread > byte_budget.SMALL_PIECE else at_once
                        events = await reader.next(None)
                        if events is not None and any(may_end_key(event) for event in events):
                            await key.check()
                        if key.ended:
                            yield KEY_ENDED
                            return
                        chunk, over = _encoded(events or (), encoder, end)
                        del events
                        over = over or (end.follows and not end.inside and draining.is_draining())
                        if not chunk and not over and quiet.is_due:
                            chunk = KEEP_ALIVE
                        if chunk:
                            # The server takes a chunk when the client has read most of the previous one.
                            if not byte_budget.hold(unread + len(chunk)):
                                return
                            yield chunk
                            unread = len(chunk)
                            byte_budget.hold(unread)
                            quiet.sent()
        except PositionPruned:
            return


class _AtOnce:
    """Sends deltas when they arrive, without waking the stream's task, which has fourteen coroutines to step through."""

    __slots__ = ("_encoder", "_end", "_quiet", "_write")

    def __init__(self, write: Callable[[bytes], bool], encoder: SSEEncoder, end: RunEnd, quiet: Quiet) -> None:
        self._write, self._encoder, self._end, self._quiet = write, encoder, end, quiet

    def __call__(self, events: Sequence[Event]) -> bool:
        """False, and nothing is sent, if one of them may end the stream, or the client has to read first."""
        for event in events:
            if event.kind not in STREAM_KINDS or self._end.reached(event):
                return False
        chunk = b"".join([self._encoder.encode(event) for event in events])
        if not chunk:
            return True
        if len(chunk) > byte_budget.SMALL_PIECE or not self._write(chunk):
            return False
        self._quiet.sent()
        return True


def _encoded(events: Sequence[Event], encoder: SSEEncoder, end: RunEnd) -> tuple[bytes, bool]:
    pieces = []
    for event in events:
        pieces.append(encoder.encode(event))
        if end.reached(event):
            return b"".join(pieces), True
    return b"".join(pieces), False
