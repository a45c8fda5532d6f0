"""The queue of units before a flush: in order per session, with equal shares of bytes per tenant. Pure.

Deficit round robin: each round gives a tenant ``_ROUND`` bytes of credit, and takes the units that its credit covers. So one
tenant's megabytes do not delay another's small delta, and a unit of any size is sent eventually.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge

from sessions_app.core.log.journal.entries import Entry

_ROUND = 16 * 1024
_LONGEST_JOINED = 16 * 1024
"""Queued deltas are joined up to this length, so that few objects collect while the database is down."""


@dataclass(slots=True)
class _Lane:
    """A tenant's entries by ticket, and its credit in bytes."""

    entries: deque[Entry] = field(default_factory=deque)
    credit: int = 0


class FairQueue:
    """Entries of all tenants. Used by one writer, in its loop."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        """The tenants in the order of their next rounds."""
        self._newest: dict[int, Entry] = {}
        """By session."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for lane in self._lanes.values():
            yield from lane.entries

    def add(self, entry: Entry) -> int:
        """Add an entry, or join a delta with the one before it; returns the added bytes."""
        newest = self._newest.get(entry.unit.session)
        if newest is not None and newest.size < _LONGEST_JOINED and newest.can_join(entry):
            return newest.join(entry)
        self._lane(entry).entries.append(entry)
        self._newest[entry.unit.session] = entry
        self._count += 1
        return entry.size

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Return entries to their places in the queue, by their tickets."""
        by_tenant: dict[int, list[Entry]] = {}
        for entry in sorted(entries, key=_ticket):
            by_tenant.setdefault(entry.unit.tenant, []).append(entry)
            newest = self._newest.get(entry.unit.session)
            if newest is None or newest.ticket < entry.ticket:
                self._newest[entry.unit.session] = entry
            self._count += 1
        for back in by_tenant.values():
            lane = self._lane(back[0])
            lane.entries = deque(merge(back, lane.entries, key=_ticket))

    def take(self, most_units: int, most_bytes: int) -> list[Entry]:
        """Take the next entries, sorted by ticket. Only the last one may exceed ``most_bytes``."""
        taken: list[Entry] = []
        left = most_bytes
        while self._lanes and left > 0 and len(taken) < most_units:
            tenant = next(iter(self._lanes))
            lane = self._lanes.pop(tenant)
            lane.credit += _ROUND
            while lane.entries and lane.entries[0].size <= lane.credit and left > 0 and len(taken) < most_units:
                entry = lane.entries.popleft()
                lane.credit -= entry.size
                left -= entry.size
                taken.append(entry)
                if self._newest.get(entry.unit.session) is entry:
                    del self._newest[entry.unit.session]
            if lane.entries:
                self._lanes[tenant] = lane
        self._count -= len(taken)
        taken.sort(key=_ticket)
        return taken

    def _lane(self, entry: Entry) -> _Lane:
        return self._lanes.setdefault(entry.unit.tenant, _Lane())


def _ticket(entry: Entry) -> int:
    return entry.ticket
