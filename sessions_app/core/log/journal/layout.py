"""Turns the units of a flush into rows: joins deltas and orders the sessions. Pure.

Sessions are put into groups, and each group is announced separately, so sessions that wait for the disk are numbered before
those that do not. Within its group a session's rows are consecutive and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sessions_app.core.base.events import Happening
from sessions_app.core.log.journal.rows import Appended, Row, text_of
from sessions_app.core.log.journal.types import Stored, Unit


@dataclass(slots=True)
class Layout:
    """The units of one append, and its rows. ``places``: for each unit the row index of each of its events."""

    units: Sequence[Unit]
    rows: list[Row] = field(default_factory=list)
    groups: list[range] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)

    def units_of(self, rows: Sequence[int]) -> list[int]:
        """The indexes of the units that have an event in one of these rows."""
        wanted = set(rows)
        return [index for index, places in enumerate(self.places) if not wanted.isdisjoint(places)]

    def stored(self, unit: int, appended: Appended | None) -> list[Stored]:
        return [] if appended is None else [appended.lines[row].stored for row in self.places[unit]]

    def rows_by_run(self) -> dict[tuple[int, int | None], list[int]]:
        """The rows of each session and fence."""
        by_run: dict[tuple[int, int | None], list[int]] = {}
        for index, row in enumerate(self.rows):
            by_run.setdefault((row.session, row.fence), []).append(index)
        return by_run


@dataclass(slots=True)
class _PendingRow:
    """A row under construction: an event, the texts of the deltas joined with it, and the units they come from."""

    happening: Happening
    tenant: int
    fence: int
    texts: list[str]
    sources: list[tuple[int, int]]

    def takes(self, happening: Happening, fence: int) -> bool:
        """Whether this event is joined: consecutive deltas of one part become one event."""
        return self.fence == fence and happening.continues(self.happening)

    def text(self) -> str:
        if len(self.texts) == 1:
            return text_of(self.happening)
        return text_of(self.happening.joined(self.texts))


def lay_out(units: Sequence[Unit], group_of: Callable[[int], int], groups: int) -> Layout:
    """``group_of`` returns a session's group. Consecutive deltas of one part in one session become one row."""
    by_session: dict[int, list[_PendingRow]] = {}
    for index, unit in enumerate(units):
        pending = by_session.setdefault(unit.session, [])
        for place, happening in enumerate(unit.happenings):
            text = happening.payload.get("delta", "")
            if pending and pending[-1].takes(happening, unit.fence):
                pending[-1].texts.append(text)
                pending[-1].sources.append((index, place))
            else:
                pending.append(_PendingRow(happening, unit.tenant, unit.fence, [text], [(index, place)]))
    layout = Layout(units, places=[[0] * len(unit.happenings) for unit in units])
    sessions: list[list[int]] = [[] for _ in range(groups)]
    for session in by_session:
        sessions[group_of(session)].append(session)
    for group in sessions:
        begin = len(layout.rows)
        for session in group:
            for each in by_session[session]:
                for index, place in each.sources:
                    layout.places[index][place] = len(layout.rows)
                layout.rows.append(Row(each.tenant, session, each.happening.kind.value, each.text(), each.fence))
        layout.groups.append(range(begin, len(layout.rows)))
    return layout
