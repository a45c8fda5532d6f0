"""Units on their way to the disk, as a writer keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field

from sessions_app.core.journal.store import Written
from sessions_app.core.journal.types import Announcement, Outcome, Unit


class Ready:
    """An awaitable that waits for nothing."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


READY = Ready()


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


@dataclass(slots=True, eq=False)
class Record:
    """A flush that is stored but may not be on disk yet."""

    written: Written
    entries: list[Entry]
    waiting: list[Entry]
    announcements: list[Announcement]
    sessions: set[int]
    followers: list[Announcement] = field(default_factory=list)
