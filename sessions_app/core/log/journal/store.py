"""What the writer needs of a database: one attempt to store a list of units.

An attempt is one transaction. It never waits long and never tries twice; who tries what again, in which
company, is the writer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sessions_app.core.log.journal.layout import Layout
from sessions_app.core.log.journal.rows import Appended
from sessions_app.core.log.journal.types import Unit

UnitResult = Literal["stored", "stale", "answered", "missing", "deferred", "again"]
"""A unit after an attempt. ``missing``: it has no tail; ``deferred``: somebody holds what it needs;
``again``: nothing is wrong with it, but the attempt it was part of was not committed."""

LayOut = Callable[[Sequence[Unit]], Layout]


class Locked(Exception):
    """Somebody held a row for too long; nothing was stored."""


class Unavailable(Exception):
    """The database cannot store anything now; nothing was stored."""


class BadData(Exception):
    """The database refuses some of the data; nothing was stored. ``code`` says why, without the data."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


@dataclass(slots=True)
class Written:
    """What an attempt did. ``layout`` and ``appended`` are of the stored units, in order.

    ``era`` None: what was stored is on disk. ``transaction`` names it for later questions.
    """

    results: list[UnitResult]
    layout: Layout | None = None
    appended: Appended | None = None
    era: int | None = None
    transaction: str = ""

    @staticmethod
    def nothing(count: int, result: UnitResult = "again") -> Written:
        return Written([result] * count)


@dataclass(slots=True)
class CheckedUnits:
    """Units after their turns were looked at: what can be tried, and the fate of the rest."""

    results: list[UnitResult]
    good: list[int] = field(default_factory=list)


def check_units(
    units: Sequence[Unit],
    turns: dict[int, tuple[int, str, bool]],
    gone: frozenset[int] | set[int],
    held_sessions: Collection[int] = (),
) -> CheckedUnits:
    """Compare commit points with their locked turns (fence, state and attention by id).

    A turn that is not there was locked by another unless it is ``gone``. What comes after a deferred
    unit of a session stays behind it, as does all of ``held_sessions``; what comes after a stale one of a run is stale too.
    """
    screened = CheckedUnits([])
    held = set(held_sessions)
    dead: set[tuple[int, int]] = set()
    for index, unit in enumerate(units):
        run = (unit.session, unit.fence)
        result: UnitResult = "stored"
        if unit.session in held:
            result = "deferred"
        elif run in dead:
            result = "stale"
        elif unit.is_commit_point:
            turn = turns.get(unit.turn)
            if turn is None and unit.turn not in gone:
                result = "deferred"
                held.add(unit.session)
            elif turn is None or turn[0] != unit.fence or turn[1] != "running":
                result = "stale"
                dead.add(run)
            else:
                unit.attention = turn[2]
                if unit.unless_attention and unit.attention:
                    result = "answered"
        screened.results.append(result)
        if result == "stored":
            screened.good.append(index)
    return screened


class Store(Protocol):
    """Of one writer, used by one task at a time."""

    era: int | None
    """The database's life as this store last knew it. When it changes, what was not on disk may be lost."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def attempt(self, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        """One transaction. ``at_once``: a row that somebody holds defers what needs it instead of being waited for.

        Raises Locked, Away, BadData. A lost connection is made again in here, and the answer tells what
        of the units is stored.
        """
        ...

    async def refresh(self) -> None:
        """Make sure that the database answers and ``era`` is its present one."""
        ...

    async def barrier(self) -> int | None:
        """The era in which a barrier has passed that began after this call."""
        ...

    async def survived(self, written: Written) -> bool:
        """Whether what was stored in an earlier era is there after the crash."""
        ...
