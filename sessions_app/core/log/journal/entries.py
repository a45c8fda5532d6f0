"""Units in a writer's queue, and flushes that are stored but not yet durable."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field

from sessions_app.core.log.journal.store import Written
from sessions_app.core.log.journal.types import Announcement, Outcome, Unit


class Ready:
    """An awaitable that is already done."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


READY = Ready()

_EVENT_SIZE = 64
"""Approximate per-event overhead in bytes."""


def size_of(unit: Unit) -> int:
    """The approximate size of a unit in bytes; texts are counted by their characters."""
    size = 0
    for happening in unit.happenings:
        # Called for every delta of every stream, so a plain loop instead of a generator.
        size += _EVENT_SIZE
        for value in happening.payload.values():
            if isinstance(value, str):
                size += len(value)
    for statement in unit.statements:
        size += sum(len(value) for value in statement.params if isinstance(value, str))
    return size


@dataclass(slots=True, eq=False)
class Entry:
    """A queued unit. ``ticket``: its position in the queue. ``future``: the waiting caller, if any.

    ``durable``: the unit is done only after a barrier.
    """

    unit: Unit
    size: int
    durable: bool
    ticket: int
    future: asyncio.Future[Outcome] | None = None

    @property
    def run(self) -> tuple[int, int]:
        return (self.unit.session, self.unit.fence)

    def can_join(self, after: Entry) -> bool:
        """Whether ``after``, the session's next entry, continues the last delta of this one, and no caller waits for either."""
        mine, other = self.unit, after.unit
        return (
            self.future is after.future is None
            and self.durable == after.durable
            and mine.fence == other.fence
            and not mine.statements
            and not other.statements
            and len(other.happenings) == 1
            and bool(mine.happenings)
            and other.happenings[0].continues(mine.happenings[-1])
        )

    def join(self, after: Entry) -> int:
        """Join the delta of ``after``; returns the bytes that it adds."""
        *before, last = self.unit.happenings
        text = after.unit.happenings[0].payload["delta"]
        self.unit.happenings = [*before, last.joined([last.payload["delta"], text])]
        self.size += len(text)
        return len(text)


@dataclass(slots=True, eq=False)
class StoredFlush:
    """A flush that is stored but may not be on disk yet.

    ``waiting``: its durable entries. ``announcements``: to be sent after the barrier, ``followers`` right after them.
    ``sessions``: all sessions of these announcements.
    """

    written: Written
    entries: list[Entry]
    waiting: list[Entry]
    announcements: list[Announcement]
    sessions: set[int]
    followers: list[Announcement] = field(default_factory=list)
