"""Feeds: replay of stored events, then live events, for one session or for a whole tenant.

A feed combines the journal, which is complete, with broadcast, which is fast but may lose messages. A reader gets each event
once and in order, even if announcements are lost. Faces convert the events to their protocol.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessions_app.core.log.feed import hub
from sessions_app.core.log.feed.follower import TenantFollower
from sessions_app.core.log.feed.reader import SessionReader

__all__ = ["SessionReader", "TenantFollower", "follow", "follow_tenant", "streams_open"]

_count_lock = threading.Lock()
_open = 0


@asynccontextmanager
async def follow(tenant: int, session: int, after: int) -> AsyncIterator[SessionReader]:
    """A reader of the session's events after ``after``. Raises PositionPruned if some of them were deleted.

    The caller has checked that the session belongs to the tenant, and its thread holds no database connection.
    """
    _count(1)
    try:
        loops_hub = hub.current()
        feed, reader = loops_hub.enter(tenant, session, after)
        try:
            await feed.joined()
            if not feed.begin(reader):
                await reader.read()
            yield reader
        finally:
            loops_hub.leave(feed, reader)
    finally:
        _count(-1)


@asynccontextmanager
async def follow_tenant(tenant: int, follower: TenantFollower) -> AsyncIterator[None]:
    """Within the block the follower gets all of the tenant's events after its position."""
    _count(1)
    try:
        loops_hub = hub.current()
        feed = await loops_hub.follow(tenant, follower)
        try:
            yield
        finally:
            loops_hub.unfollow(feed, follower)
    finally:
        _count(-1)


def streams_open() -> int:
    """The number of open readers and followers of this process."""
    return _open


def _count(change: int) -> None:
    global _open
    with _count_lock:
        _open += change
