"""The recent announcements of a feed, from which new readers can start without reading the journal. Pure."""

from __future__ import annotations

from collections import deque

from sessions_app.core.log.journal.types import Announcement, SessionItem

_ITEM_BYTES = 200
_EVENT_BYTES = 100
"""Approximate overhead per item and per event in bytes."""


class Recent:
    """All received announcements that reach beyond ``since``, in the order of arrival, in bounded memory."""

    def __init__(self, since: int, max_bytes: int = 256 * 1024) -> None:
        self.since = since
        self._max_bytes = max_bytes
        self._announcements: deque[tuple[Announcement, int]] = deque()
        self._bytes = 0

    def add(self, announcement: Announcement) -> None:
        if announcement.upto <= self.since:
            return
        size = sum(_ITEM_BYTES + sum(_EVENT_BYTES + len(event.data) for event in item.events) for item in announcement.items)
        self._announcements.append((announcement, size))
        self._bytes += size
        while self._bytes > self._max_bytes:
            oldest, size = self._announcements.popleft()
            self._bytes -= size
            self.since = max(self.since, oldest.upto)

    def forget(self, upto: int) -> None:
        """Events up to this number were read from the journal instead of announced: drop everything before them."""
        if upto > self.since:
            self.since = upto
            self._announcements = deque(
                (announcement, size) for announcement, size in self._announcements if announcement.upto > upto
            )
            self._bytes = sum(size for _, size in self._announcements)

    def of(self, session: int) -> list[SessionItem]:
        """All received items of the session after ``since``; the first may begin before it."""
        return [item for announcement, _ in self._announcements for item in announcement.items if item.session == session]
