"""The JSON answer to a turn: white space while the agent works, then one object (A61)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from agents_app import exact_json
from sessions_app.aap.keep_alive import Quiet
from sessions_app.aap.stream import may_end_key, stop_reason
from sessions_app.core import turns
from sessions_app.core.base import byte_budget, database
from sessions_app.core.base.errors import AnswersFull, PositionPruned
from sessions_app.core.log import feed
from sessions_app.core.records import stored_messages
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.tenancy import key_watch, usage_entries
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.turns import Accepted

KEEP_ALIVE = b"\n"
_ROOM_CHECK_SECONDS = 1.0


async def body(
    slot: Slot, session: int, accepted: Accepted, answer: Callable[[str, list[Line]], dict[str, Any]], keep_alive: float
) -> AsyncGenerator[bytes]:
    """Yield the answer's body. ``answer`` builds the object from the stop reason and the messages of this run.

    If the caller's key ends first, there is no object.
    """
    reason: str | None = None
    with key_watch.watching(slot) as key, Quiet(keep_alive) as quiet:
        if not accepted.start:
            reason = await database.run_for(slot.caller.tenant, turns.stop_reason_of_run, accepted.turn_id, accepted.run)
        while reason is None:
            entered = False
            try:
                async with feed.follow(slot.caller.tenant, session, accepted.start) as reader:
                    key.on_end(reader.interrupt)
                    quiet.wake(reader.nudge)
                    while reason is None:
                        events = await reader.next(None)
                        entered = True
                        if any(may_end_key(event) for event in events or []):
                            await key.check()
                        if key.ended:
                            return
                        reason = next((found for event in events or [] if (found := stop_reason(event)) is not None), None)
                        if quiet.is_due:
                            yield KEEP_ALIVE
                            quiet.sent()
            except PositionPruned:
                # A crash of the database lost deltas. Only the end of the run matters here: read again from the start.
                if not entered and accepted.repeated:
                    reason = await database.run_for(slot.caller.tenant, turns.stop_reason_of_run, accepted.turn_id, accepted.run)
                if not entered and reason is None:
                    raise
        size = await database.run_for(slot.caller.tenant, usage_entries.bytes_of_run, accepted.turn_id, accepted.run)
        while not _has_room(size):
            # The status is sent already, so the answer waits until clients have read other answers.
            yield KEEP_ALIVE
            await asyncio.sleep(_ROOM_CHECK_SECONDS)
            if key.ended:
                return
        lines = await database.run_for(slot.caller.tenant, stored_messages.of_run, accepted.turn_id, accepted.run)
        if not key.ended:
            yield exact_json.dumps(answer(reason, lines)).encode()


def _has_room(size: int) -> bool:
    try:
        byte_budget.reserve(size)
    except AnswersFull:
        return False
    return True
