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
        self._items: dict[int, list[SessionItem]] = {}
        """The items of ``_announcements`` by session, because a tenant may have many sessions and new readers."""
        self._bytes = 0

    def add(self, announcement: Announcement) -> None:
        if announcement.upto <= self.since:
            return
        size = sum(_ITEM_BYTES + sum(_EVENT_BYTES + len(event.data) for event in item.events) for item in announcement.items)
        self._append(announcement, size)
        while self._bytes > self._max_bytes:
            oldest, size = self._announcements.popleft()
            self._bytes -= size
            self.since = max(self.since, oldest.upto)
            for item in oldest.items:
                # The session's oldest item: both orders are that of arrival.
                items = self._items[item.session]
                items.pop(0)
                if not items:
                    del self._items[item.session]

    def forget(self, upto: int) -> None:
        """Events up to this number were read from the journal instead of announced: drop everything before them."""
        if upto > self.since:
            self.since = upto
            kept = [(announcement, size) for announcement, size in self._announcements if announcement.upto > upto]
            self._announcements.clear()
            self._items.clear()
            self._bytes = 0
            for announcement, size in kept:
                self._append(announcement, size)

    def of(self, session: int, after: int) -> list[SessionItem]:
        """All received items of the session with events after ``since`` and ``after``; the first may begin before it."""
        # The order is that of arrival, so none can be told by its place.
        return [item for item in self._items.get(session, ()) if item.events and item.events[-1].seq > after]

    def _append(self, announcement: Announcement, size: int) -> None:
        self._announcements.append((announcement, size))
        self._bytes += size
        for item in announcement.items:
            self._items.setdefault(item.session, []).append(item)
