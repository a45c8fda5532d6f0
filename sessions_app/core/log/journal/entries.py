"""Units on their way to the disk, as a writer keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field

from sessions_app.core.log.journal.store import Written
from sessions_app.core.log.journal.types import Announcement, Outcome, Unit


class Ready:
    """An awaitable that waits for nothing."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


READY = Ready()

_EVENT_SIZE = 64
"""Approximate bytes of an event beside its text."""


def size_of(unit: Unit) -> int:
    """The approximate bytes of what a unit stores; texts are counted by their characters."""
    size = 0
    for happening in unit.happenings:
        # For every delta of every stream, so without a generator.
        size += _EVENT_SIZE
        for value in happening.payload.values():
            if isinstance(value, str):
                size += len(value)
    for statement in unit.statements:
        size += sum(len(value) for value in statement.params if isinstance(value, str))
    return size


@dataclass(slots=True, eq=False)
class Entry:
    """A unit on its way. ``ticket`` is its place in line; ``future`` None: nobody waits for it.

    ``durable``: it waits for the barrier.
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
        """Whether ``after``, the next of the session, is one more piece of what this ends with, and nobody waits for either."""
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
        """Take the piece in; the bytes that it adds."""
        *before, last = self.unit.happenings
        text = after.unit.happenings[0].payload["delta"]
        self.unit.happenings = [*before, last.joined([last.payload["delta"], text])]
        self.size += len(text)
        return len(text)


@dataclass(slots=True, eq=False)
class StoredFlush:
    """A flush that is stored but may not be on disk yet."""

    written: Written
    entries: list[Entry]
    waiting: list[Entry]
    announcements: list[Announcement]
    sessions: set[int]
    followers: list[Announcement] = field(default_factory=list)
