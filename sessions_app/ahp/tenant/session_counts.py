"""Number of sessions that exist for keys limited to some agents: read once, then kept by the tenant's events.

A tenant's own count is in its events. How many sessions some agents have is not, and counting rows at each event would
be a query for each.
"""

from __future__ import annotations

import asyncio

from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy import agent_listings


class Tally:
    """Of one loop and one set of agents. Events are given in the tenant's order."""

    def __init__(self, agents: frozenset[str]) -> None:
        self._agents = agents
        self._base = -1
        self._count = 0
        self._early: list[tuple[int, int]] = []
        self._changed = False
        self._beginning: asyncio.Task[None] | None = None

    async def begun(self, caller: Caller) -> None:
        """Wait until the count was read; ``caller`` is limited to these agents. Reads it again if that failed."""
        if self._base < 0:
            if self._beginning is None or self._beginning.done():
                self._beginning = asyncio.create_task(self._begin(caller))
            await asyncio.shield(self._beginning)

    async def _begin(self, caller: Caller) -> None:
        # Events that arrive meanwhile are kept: the count may or may not include them.
        self._base, self._count = await database.run_for(caller.tenant, agent_listings.standing, caller)
        early, self._early = self._early, []
        for seq, change in early:
            self._add(seq, change)

    def take(self, seq: int, agent: str, change: int) -> None:
        """A session of this agent was made or is gone."""
        if agent not in self._agents:
            return
        if self._base < 0:
            self._early.append((seq, change))
        else:
            self._add(seq, change)

    def _add(self, seq: int, change: int) -> None:
        if seq > self._base:
            self._count += change
            self._changed = True

    def news(self) -> int | None:
        """The number of sessions, if it has changed since this was asked last."""
        changed, self._changed = self._changed, False
        return self._count if changed and self._base >= 0 else None
