"""Conversion between announcements and messages of the channel layer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sessions_app.core.log.journal.types import Announcement, Event, SessionItem

TYPE = "announcement"
MAX_DATA = 1024 * 1024
"""The maximum characters of events in one announcement. A larger one is sent without its events, and feeds read the journal:
Redis disconnects subscribers with too much unread data, and our queues are bounded."""


@dataclass(frozen=True, slots=True)
class Received:
    """Received announcements, in the order of arrival. ``missed``: some may have been lost."""

    announcements: list[Announcement]
    missed: bool


def to_message(announcement: Announcement) -> dict[str, Any]:
    size = sum(len(event.data) for item in announcement.items for event in item.events)
    items = None if size > MAX_DATA else [_item(item) for item in announcement.items]
    return {"type": TYPE, "of": [announcement.tenant, announcement.before, announcement.upto, items]}


def from_messages(messages: Iterable[dict[str, Any]], *, missed: bool) -> Received:
    announcements = []
    for message in messages:
        if message.get("type") != TYPE:
            continue  # A newer release may send other types.
        tenant, before, upto, items = message["of"]
        if items is None:
            missed = True
        else:
            announcements.append(Announcement(tenant, before, upto, [_session_item(*item) for item in items]))
    return Received(announcements, missed)


def _item(item: SessionItem) -> list[Any]:
    return [item.session, item.prev, [[event.seq, event.kind, event.data, event.fence] for event in item.events]]


def _session_item(session: int, prev: int, events: list[tuple[int, str, str, int | None]]) -> SessionItem:
    return SessionItem(session, prev, [Event(seq, session, kind, data, fence) for seq, kind, data, fence in events])
