"""The values that go into the journal and come out of it, the same for both databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sessions_app.core.base.events import Happening
from sessions_app.core.base.raw_sql import Statement


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. ``session`` None: the tenant's own. ``fence`` None: from a web transaction.

    ``sessions`` changes the tenant's count of sessions; such an event's payload is written by the
    append itself, ``{"count": N}`` with the count after it.
    """

    tenant: int
    session: int | None
    happening: Happening
    fence: int | None = None
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """Where an appended event stands: its number, and the number of its session's event before it."""

    seq: int
    prev: int


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it is read. ``data`` is JSON text."""

    seq: int
    session: int
    kind: str
    data: str
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class SessionItem:
    """What one announcement says of one session: its events, and its number before them."""

    session: int
    prev: int
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The tenant's numbers ``before`` < n <= ``upto`` are all here (numbers nobody got included)."""

    tenant: int
    before: int
    upto: int
    items: Sequence[SessionItem]


Outcome = Literal["stored", "stale", "answered"]


@dataclass(slots=True)
class Unit:
    """A run's progress, stored whole or not at all.

    ``statements`` run in order, before the append; none: deltas alone, which wait for nobody.
    ``unless_answered``: the unit leaves the turn waiting; it is refused with "answered" if a client
    answered a call that this run has not seen (a call of the turn is ``granted``, or decided but not
    ``stored``, or none waits for anybody). ``unless_attention``: the unit ends the turn; it is refused with
    "answered" if something has to follow that end (turns.finish does both). ``attention`` is how the turn was found.
    """

    tenant: int
    session: int
    turn: int
    fence: int
    happenings: Sequence[Happening]
    statements: Sequence[Statement] = ()
    unless_answered: bool = False
    unless_attention: bool = False
    attention: bool = False
    stored: list[Stored] = field(default_factory=list)

    @property
    def is_commit_point(self) -> bool:
        return bool(self.statements)


@dataclass(frozen=True, slots=True)
class SessionRead:
    """A session's events after a position, and the tenant's counter in the same snapshot."""

    events: Sequence[Event]
    counter: int
    more: bool


@dataclass(frozen=True, slots=True)
class TenantRead:
    """All of a tenant's events with ``after`` < seq <= ``upto``."""

    events: Sequence[Event]
    upto: int
    more: bool


@dataclass(frozen=True, slots=True)
class Gap:
    after: int
    upto: int
