"""The interface between the writer and a database: one attempt to store a list of units.

An attempt is one transaction with a short lock timeout and no retries. The writer decides which units it tries again, and
together with which others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sessions_app.core.log.journal.layout import Layout
from sessions_app.core.log.journal.rows import Appended
from sessions_app.core.log.journal.types import Unit

UnitResult = Literal["stored", "stale", "answered", "missing", "deferred", "again"]
"""The result of an attempt for one unit. ``missing``: the session has no tail; ``deferred``: a row is locked;
``again``: nothing is wrong with the unit, but its attempt was not committed."""

LayOut = Callable[[Sequence[Unit]], Layout]


class Locked(Exception):
    """A row was locked for too long; nothing was stored."""


class Unavailable(Exception):
    """The database is unreachable or read-only; nothing was stored."""


class BadData(Exception):
    """The database refuses some of the data; nothing was stored. ``code`` is the reason, without the data."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


@dataclass(slots=True)
class Written:
    """The result of an attempt. ``layout`` and ``appended`` are those of the stored units, in order.

    ``era`` None: the units are on disk. ``transaction``: its number, for later queries about its outcome.
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
    """Units whose turns were checked: the indexes of those to store, and the results of the others."""

    results: list[UnitResult]
    good: list[int] = field(default_factory=list)


def check_units(
    units: Sequence[Unit],
    turns: dict[int, tuple[int, str, bool]],
    gone: frozenset[int] | set[int],
    locked_sessions: Collection[int] = (),
) -> CheckedUnits:
    """Compare commit points with their locked turns (fence, state and attention by id).

    A turn that is missing in ``turns`` is locked by another transaction, unless it is ``gone``. Units after a deferred one of
    the same session are deferred too, as are all of ``locked_sessions``; units after a stale one of the same run are stale.
    """
    screened = CheckedUnits([])
    deferred = set(locked_sessions)
    stale: set[tuple[int, int]] = set()
    for index, unit in enumerate(units):
        run = (unit.session, unit.fence)
        result: UnitResult = "stored"
        if unit.session in deferred:
            result = "deferred"
        elif run in stale:
            result = "stale"
        elif unit.is_commit_point:
            turn = turns.get(unit.turn)
            if turn is None and unit.turn not in gone:
                result = "deferred"
                deferred.add(unit.session)
            elif turn is None or turn[0] != unit.fence or turn[1] != "running":
                result = "stale"
                stale.add(run)
            else:
                unit.attention = turn[2]
                if unit.unless_attention and unit.attention:
                    result = "answered"
        screened.results.append(result)
        if result == "stored":
            screened.good.append(index)
    return screened


class Store(Protocol):
    """The store of one writer, used by one task at a time."""

    era: int | None
    """The database's era as this store last read it. When it changes, units that were not on disk may be lost."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def attempt(self, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        """Store the units in one transaction. ``at_once``: units that need a locked row are deferred instead of waiting.

        Raises Locked, Unavailable, BadData. After a lost connection it reconnects and returns which units are stored.
        """
        ...

    async def refresh(self) -> None:
        """Reconnect if needed and update ``era``."""
        ...

    async def barrier(self) -> int | None:
        """Wait for a barrier that begins after this call; returns its era."""
        ...

    async def survived(self, written: Written) -> bool:
        """Whether a flush of an earlier era still exists after a crash."""
        ...
