"""Puts a tenant's announcements into order. Pure: no clock, no waiting, no rows."""

from __future__ import annotations

import heapq

from sessions_app.core.log.journal.types import Announcement, Event


class TenantOrder:
    """Tracks the number up to which all announcements have arrived, and parks those that arrive too early.

    ``position`` advances over consecutive announcements and over events that were read from the journal. A hole is a missing
    announcement before a parked one: it is late or lost.
    """

    def __init__(self, position: int, max_parked: int = 2000) -> None:
        self.position = position
        self._max_parked = max_parked
        # (before, when it came, a number that decides between equals, announcement)
        self._parked: list[tuple[int, float, int, Announcement]] = []
        self._count = 0

    @property
    def has_hole(self) -> bool:
        return bool(self._parked)

    @property
    def hole_since(self) -> float | None:
        """When the oldest parked announcement arrived; None if there is no hole."""
        return min((came for _, came, _, _ in self._parked), default=None)

    def accept(self, announcement: Announcement, now: float) -> list[Announcement]:
        """The announcements that can be delivered now, in order.

        An announcement may begin before the position: the caller must skip events that it has delivered already.
        """
        if announcement.upto <= self.position:
            return []
        if announcement.before > self.position:
            # With too many parked ones, the hole and this one are read from the journal anyway.
            if len(self._parked) < self._max_parked:
                self._count += 1
                heapq.heappush(self._parked, (announcement.before, now, self._count, announcement))
            return []
        self.position = announcement.upto
        return [announcement, *self._released()]

    def read_through(self, upto: int) -> list[Announcement]:
        """The journal was read from the position up to this number; returns the parked announcements that follow."""
        self.position = max(self.position, upto)
        return self._released()

    def _released(self) -> list[Announcement]:
        released = []
        while self._parked and self._parked[0][0] <= self.position:
            announcement = heapq.heappop(self._parked)[3]
            if announcement.upto > self.position:
                self.position = announcement.upto
                released.append(announcement)
        return released


def in_order(announcement: Announcement, after: int) -> list[Event]:
    """An announcement's events after a number, of all sessions, in the tenant's order."""
    events = [event for item in announcement.items for event in item.events if event.seq > after]
    return sorted(events, key=lambda event: event.seq)
