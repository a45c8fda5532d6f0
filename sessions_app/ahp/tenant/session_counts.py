"""Number of sessions that a limited caller may see: read once, then updated from the tenant's events.

Events contain the number of all sessions of a tenant, but not of those of some agents; counting rows at each event would be a
query each time.
"""

from __future__ import annotations

import asyncio

from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller, Sight
from sessions_app.core.tenancy import agent_listings


class SessionCount:
    """The sessions that callers with this sight see, in one event loop. Events are passed in the tenant's order."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._base = -1
        self._count = 0
        self._early: list[tuple[int, int]] = []
        self._changed = False
        self._reading: asyncio.Task[None] | None = None

    async def ready(self, caller: Caller) -> None:
        """Wait until the count was read; ``caller`` has this sight. Reads it again if that failed."""
        if self._base < 0:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(caller))
            await asyncio.shield(self._reading)

    async def _read(self, caller: Caller) -> None:
        # Events that arrive meanwhile are kept: the count may or may not include them.
        self._base, self._count = await database.run_for(caller.tenant, agent_listings.counter_and_sessions, caller)
        early, self._early = self._early, []
        for seq, change in early:
            self._add(seq, change)

    def take(self, seq: int, agent: str, session: int, change: int) -> None:
        """This session, which is of this agent, was created (1) or deleted (-1)."""
        if not self._sight.may_see(agent, session):
            return
        if self._base < 0:
            self._early.append((seq, change))
        else:
            self._add(seq, change)

    def _add(self, seq: int, change: int) -> None:
        if seq > self._base:
            self._count += change
            self._changed = True

    def take_change(self) -> int | None:
        """The number of sessions, if it has changed since the last call."""
        changed, self._changed = self._changed, False
        return self._count if changed and self._base >= 0 else None
