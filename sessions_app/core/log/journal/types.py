"""The input and output values of the journal, the same for both databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sessions_app.core.base.events import Happening
from sessions_app.core.base.raw_sql import Statement


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. ``session`` None: the tenant's own event. ``fence`` None: from a transaction outside a run.

    ``sessions`` changes the tenant's number of sessions; the append itself then writes the payload, ``{"count": N}`` with the
    new number.
    """

    tenant: int
    session: int | None
    happening: Happening
    fence: int | None = None
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """The position of an appended event: its number, and the number of its session's previous event."""

    seq: int
    prev: int


# Made for every delivered event, so tuples: frozen dataclasses take twice as long to create.
class Event(NamedTuple):
    """An event as it is read. ``data`` is JSON text."""

    seq: int
    session: int
    kind: str
    data: str
    fence: int | None = None


class SessionItem(NamedTuple):
    """The part of an announcement about one session: its new events, and the number of the event before them."""

    session: int
    prev: int
    events: Sequence[Event]

    @property
    def first(self) -> int:
        """The number of the first event; 0 if there is none."""
        return self.events[0].seq if self.events else 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """All of a tenant's events with ``before`` < number <= ``upto``. Some of these numbers may be unused."""

    tenant: int
    before: int
    upto: int
    items: Sequence[SessionItem]


Outcome = Literal["stored", "stale", "answered"]


@dataclass(slots=True)
class Unit:
    """A piece of a run's progress, stored atomically.

    ``statements`` run before the append. They are independent of each other as far as joined_statements.py does not see it:
    none reads a column that another one updates. Without statements the unit has deltas only and waits for no lock.
    ``unless_answered``: the unit leaves the turn waiting; the outcome is "answered" if a client has answered a call in a way
    that this run has not seen (a call of the turn is ``granted``, or decided but not ``stored``, or no call waits).
    ``unless_attention``: the unit ends the turn; the outcome is "answered" if something must follow that end (turns.finish
    does both). ``attention``: the turn's flag, as its run knows it and then as the attempt found it.
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
