"""Orders one session's events for one reader: each once, in bounded memory. Pure.

An announcement contains the number of the session's previous event, so the order does not depend on other sessions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from sessions_app.core.log.journal.types import Event, SessionItem

_EVENT_BYTES = 100
"""Approximate per-event overhead in bytes."""


class SessionChain:
    """The queue between the announcements of a session and its reader.

    ``delivered``: the last event that the reader has taken. ``position``: the last event in the queue. ``covered``: all of the
    session's events up to this number are queued or delivered (never below ``position``).

    It starts ``behind``: the journal must be read. It is behind again when the queue overflows, and then accepts nothing
    until the next read.
    """

    def __init__(self, after: int, max_events: int = 1000, max_bytes: int = 512 * 1024) -> None:
        self.delivered = self.position = self.covered = after
        self.behind = True
        self._max_events, self._max_bytes = max_events, max_bytes
        self._reading = False
        self._ready: deque[Event] = deque()
        self._ready_bytes = 0
        # (its number before, a number that decides between equals, item)
        self._held: list[tuple[int, int, SessionItem]] = []
        self._held_count = 0
        self._held_bytes = 0
        self._held_overflowed = False

    @property
    def is_ready(self) -> bool:
        return bool(self._ready)

    def drain(self) -> list[Event]:
        """Take everything from the queue."""
        events = list(self._ready)
        self._ready.clear()
        self._ready_bytes = 0
        if events:
            self.delivered = events[-1].seq
        return events

    # Live

    def go_live(self) -> None:
        """Accept live events without reading the journal: all events after the position will be offered."""
        self.behind = False

    def offer(self, item: SessionItem) -> None:
        """Accept announced events: all of the session's events from ``item.prev`` to the last of the item."""
        if self._reading:
            self._hold(item)
        elif self.behind:
            pass  # The next read of the journal finds it.
        elif item.prev <= self.covered:
            self._queue(item.events)
            self._release()
        elif item.events and item.events[-1].seq > self.covered:
            self._hold(item)

    def pass_on(self, item: SessionItem) -> Sequence[Event]:
        """``offer`` and ``drain`` at once, for a reader that has taken everything before."""
        if self._reading or self.behind or self._ready or self._held or not item.prev <= self.covered < item.first:
            self.offer(item)
            return self.drain()
        self.delivered = self.position = self.covered = item.events[-1].seq
        return item.events

    def advance(self, upto: int) -> None:
        """Called when all of the session's events up to this number have been offered."""
        if not self.behind and upto > self.covered:
            self.covered = upto
            self._release()

    # Reading the journal: begin_read, the read from ``position``, then end_read or abandon_read

    def begin_read(self) -> None:
        """Keep offered events from now on, because the read may not see them."""
        self._reading = True
        self._discard_held()

    def end_read(self, events: Sequence[Event], counter: int, *, more: bool) -> None:
        """Queue the events that were read. Without ``more`` they are all events up to ``counter``."""
        self._reading = False
        for event in events:
            self._append(event)
        if more or self._held_overflowed:
            self._discard_held()
        else:
            self.behind = False
            self.covered = max(self.covered, counter)
            self._release()

    def abandon_read(self) -> None:
        self._reading = False
        self._discard_held()

    def rewind(self) -> None:
        """Discard the queue: its events are read again, starting after the delivered ones."""
        self._ready.clear()
        self._ready_bytes = 0
        self.position = self.covered = self.delivered
        self.behind = True
        self._discard_held()

    def _queue(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.seq <= self.covered:
                continue
            size = len(event.data) + _EVENT_BYTES
            if self._ready and (len(self._ready) >= self._max_events or self._ready_bytes + size > self._max_bytes):
                self.behind = True
                self._discard_held()
                return
            self._append(event)

    def _append(self, event: Event) -> None:
        self._ready.append(event)
        self._ready_bytes += len(event.data) + _EVENT_BYTES
        self.position = event.seq
        self.covered = max(self.covered, event.seq)

    def _hold(self, item: SessionItem) -> None:
        size = _size(item)
        if self._held_overflowed or (self._held and self._held_bytes + size > self._max_bytes):
            self._discard_held()
            self._held_overflowed = True
            self.behind = True
        else:
            self._held_count += 1
            heapq.heappush(self._held, (item.prev, self._held_count, item))
            self._held_bytes += size

    def _release(self) -> None:
        """Queue the held events that follow now."""
        while not self.behind and self._held and self._held[0][0] <= self.covered:
            item = heapq.heappop(self._held)[2]
            self._held_bytes -= _size(item)
            self._queue(item.events)

    def _discard_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        self._held_overflowed = False


def _size(item: SessionItem) -> int:
    return sum(len(event.data) + _EVENT_BYTES for event in item.events)
