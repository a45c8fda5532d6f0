"""The rows of an append, its result, and the announcements made from it. Pure, for both databases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sessions_app.core.base.events import Happening
from sessions_app.core.log.journal.errors import CounterLocked, MissingTail, StaleFence
from sessions_app.core.log.journal.types import Announcement, Event, NewEvent, SessionItem, Stored

Status = Literal["stored", "stale", "missing", "skipped", "no era"]


# Created for every event, so not frozen: frozen dataclasses take twice as long to create.
@dataclass(slots=True)
class Row:
    """One event to append. ``session`` is the number of the tail: a tenant's own is ``-tenant``."""

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
    """The payload as storable text: lone surrogates, which no database stores, stay escaped."""
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
    """The result for one row. ``data``: its text as stored."""

    status: Status
    seq: int
    prev: int
    data: str

    @property
    def stored(self) -> Stored:
        return Stored(self.seq, self.prev)


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append: one line for each row, in order, and each tenant's counter before and after.

    ``era``: the database's era of the append; None: the rows are on disk already.
    """

    lines: Sequence[AppendedRow]
    before: dict[int, int]
    upto: dict[int, int]
    era: int | None

    def with_status(self, rows: Sequence[Row], *statuses: Status) -> list[int]:
        """The sessions of rows with one of these statuses."""
        return sorted({row.session for row, line in zip(rows, self.lines, strict=True) if line.status in statuses})

    def check(self, rows: Sequence[Row]) -> None:
        """Raise the error of a row that was not stored, if there is one."""
        if held := {row.tenant for row, line in zip(rows, self.lines, strict=True) if line.status == "skipped"}:
            raise CounterLocked(held)
        if missing := self.with_status(rows, "missing"):
            raise MissingTail(missing)
        if stale := self.with_status(rows, "stale"):
            raise StaleFence(stale)


def announcements(rows: Sequence[Row], appended: Appended, groups: Iterable[range]) -> list[list[Announcement]]:
    """The announcements of each group of consecutive rows, one per tenant.

    Each announcement covers the tenant's numbers up to the next group's first one, so that together they have no hole where
    a refused row used up a number.
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
    """Let each tenant's first announcement begin at its counter before the append, to cover gaps and refused numbers."""
    started: set[int] = set()
    result = []
    for group in made:
        result.append(
            [
                each if each.tenant in started else Announcement(each.tenant, appended.before[each.tenant], each.upto, each.items)
                for each in group
            ]
        )
        started.update(each.tenant for each in group)
    return result
