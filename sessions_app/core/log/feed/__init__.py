"""Replay, then live: how a stream follows a session, and a face with many of them its whole tenant.

Stands between the journal, which has everything, and broadcast, which is quick and may lose something.
A reader is given each event once and in order, whatever becomes of announcements. It gives out events
as they are stored; what they mean on a wire is the faces' business.
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
    """A reader of the session's events behind ``after``. Raises PositionPruned if they are not all kept.

    The caller has made sure that the session is the tenant's, and that its thread holds no connection.
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
    """Within the block the follower is given all of the tenant's events behind its position."""
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
    """How many readers this process has, in all its loops."""
    return _open


def _count(change: int) -> None:
    global _open
    with _count_lock:
        _open += change
