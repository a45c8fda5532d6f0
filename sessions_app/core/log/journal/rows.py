"""Events on their way into the journal, as rows, with what an append answers for each.

Pure: no database. Both databases' appends take these rows, and announcements are made from the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sessions_app.core.base.events import Happening
from sessions_app.core.log.journal.errors import CounterLocked, MissingTail, StaleFence
from sessions_app.core.log.journal.types import Announcement, Event, NewEvent, SessionItem, Stored

Status = Literal["stored", "stale", "missing", "skipped", "no era"]


# Rows and what became of them are made for every event; frozen ones would take twice as long to make.
@dataclass(slots=True)
class Row:
    """One event as the append takes it. ``session`` is the tail's: a tenant's own is ``-tenant``."""

    tenant: int
    session: int
    kind: str
    data: str
    fence: int | None = None
    sessions: int = 0

    @staticmethod
    def of(event: NewEvent) -> Row:
        session = -event.tenant if event.session is None else event.session
        happening = event.happening
        data = "" if event.sessions else text_of(happening)
        return Row(event.tenant, session, happening.kind.value, data, event.fence, event.sessions)


def text_of(happening: Happening) -> str:
    """The payload as storable text: a lone surrogate, which no database takes, stays in its escaped form."""
    data = happening.data()
    if data.isascii():
        return data
    try:
        data.encode()
    except UnicodeEncodeError:
        return json.dumps(happening.payload, separators=(",", ":"), allow_nan=False)
    return data


@dataclass(slots=True)
class AppendedRow:
    """What became of one row. ``data`` is its text as stored."""

    status: Status
    seq: int
    prev: int
    data: str

    @property
    def stored(self) -> Stored:
        return Stored(self.seq, self.prev)


@dataclass(frozen=True, slots=True)
class Appended:
    """An append's answer: a line for each row, in order, and each tenant's counter before and after.

    ``era`` is the database's life it happened in; None: rows that are on disk already.
    """

    lines: Sequence[AppendedRow]
    before: dict[int, int]
    upto: dict[int, int]
    era: int | None

    def with_status(self, rows: Sequence[Row], *statuses: Status) -> list[int]:
        """The sessions of rows that ended so."""
        return sorted({row.session for row, line in zip(rows, self.lines, strict=True) if line.status in statuses})

    def check(self, rows: Sequence[Row]) -> None:
        """Raises what stood in the way of a row, if there was anything."""
        if held := {row.tenant for row, line in zip(rows, self.lines, strict=True) if line.status == "skipped"}:
            raise CounterLocked(held)
        if missing := self.with_status(rows, "missing"):
            raise MissingTail(missing)
        if stale := self.with_status(rows, "stale"):
            raise StaleFence(stale)


def announcements(rows: Sequence[Row], appended: Appended, groups: Iterable[range]) -> list[list[Announcement]]:
    """For each group of neighbouring rows its announcements, one a tenant.

    Each covers the tenant's numbers up to the next group's first, so that together they leave no hole
    where a refused row took a number with it.
    """
    stored = [[index for index in group if appended.lines[index].status == "stored"] for group in groups]
    upto = dict(appended.upto)
    made: list[list[Announcement]] = []
    for group in reversed(stored):
        sessions: dict[int, dict[int, list[int]]] = {}
        for index in group:
            sessions.setdefault(rows[index].tenant, {}).setdefault(rows[index].session, []).append(index)
        announced = []
        for tenant, indexes in sessions.items():
            first = min(appended.lines[each[0]].seq for each in indexes.values())
            announced.append((tenant, first, upto[tenant], indexes))
            upto[tenant] = first - 1
        made.append([])
        for tenant, first, last, indexes in announced:
            items = [_item(rows, appended, each) for each in indexes.values()]
            made[-1].append(Announcement(tenant, first - 1, last, items))
    made.reverse()
    return _including_counter_before(made, appended)


def _item(rows: Sequence[Row], appended: Appended, indexes: Sequence[int]) -> SessionItem:
    events = [
        Event(appended.lines[index].seq, rows[index].session, rows[index].kind, appended.lines[index].data, rows[index].fence)
        for index in indexes
    ]
    return SessionItem(rows[indexes[0]].session, appended.lines[indexes[0]].prev, events)


def _including_counter_before(made: list[list[Announcement]], appended: Appended) -> list[list[Announcement]]:
    """A tenant's first announcement begins at its counter before the append, over jumps and refused numbers."""
    begun: set[int] = set()
    result = []
    for group in made:
        result.append(
            [
                each if each.tenant in begun else Announcement(each.tenant, appended.before[each.tenant], each.upto, each.items)
                for each in group
            ]
        )
        begun.update(each.tenant for each in group)
    return result
