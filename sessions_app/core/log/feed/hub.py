"""The feeds of one loop, and the polling of their tenants' counters, which finds events whose announcement was lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from weakref import WeakKeyDictionary

from django.db import Error as DatabaseError

from sessions_app.core.base import database, redaction, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.feed.follower import TenantFollower
from sessions_app.core.log.feed.reader import SessionReader
from sessions_app.core.log.feed.tenant import TenantFeed

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.25
_TICKS_WHILE_UP = 4
LINGER_SECONDS = 30.0
"""How long a feed without readers stays open: the next turn of a conversation comes soon, and subscribing again costs a
round trip to Redis and a read of the journal."""


class Hub:
    """Opens a tenant's feed for its first reader and closes it some time after the last one has left."""

    def __init__(self) -> None:
        self._feeds: dict[int, TenantFeed] = {}
        self._closing: dict[int, asyncio.TimerHandle] = {}
        self._polling: asyncio.Task[None] | None = None

    def enter(self, tenant: int, session: int, after: int) -> tuple[TenantFeed, SessionReader]:
        feed = self._feed(tenant)
        reader = SessionReader(feed, session, after)
        feed.add(reader)
        return feed, reader

    def leave(self, feed: TenantFeed, reader: SessionReader) -> None:
        if feed.remove(reader):
            self._close_later(feed)

    async def follow(self, tenant: int, follower: TenantFollower) -> TenantFeed:
        """Let the follower get everything after the feed's position; the caller must call ``unfollow`` at the end."""
        feed = self._feed(tenant)
        feed.add_follower(follower)
        try:
            await feed.joined()
            if not feed.is_established:
                counters = await database.run_for(tenant, journal.counters, [tenant])
                feed.establish(counters.get(tenant, 0))
            follower.begin(feed)
        except BaseException:
            self.unfollow(feed, follower)
            raise
        return feed

    def unfollow(self, feed: TenantFeed, follower: TenantFollower) -> None:
        if feed.remove_follower(follower):
            self._close_later(feed)

    def _feed(self, tenant: int) -> TenantFeed:
        if tenant in self._closing:
            self._closing.pop(tenant).cancel()
        feed = self._feeds.get(tenant)
        if feed is not None and not feed.is_listening:
            # It has failed. Its readers were notified and unregister one after the other.
            feed.close()
            feed = None
        if feed is None:
            feed = self._feeds[tenant] = TenantFeed(tenant)
        if self._polling is None:
            self._polling = supervision.task(self._poll(), "feeds-poll")
        return feed

    def _close_later(self, feed: TenantFeed) -> None:
        if self._feeds.get(feed.tenant) is not feed:
            # It has failed and was replaced.
            return
        loop = asyncio.get_running_loop()
        self._closing[feed.tenant] = loop.call_later(LINGER_SECONDS, self._close, feed)

    def _close(self, feed: TenantFeed) -> None:
        self._closing.pop(feed.tenant, None)
        del self._feeds[feed.tenant]
        feed.close()
        if not self._feeds and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self) -> None:
        """Query the counters of all tenants every second, and every tick while the pub/sub transport is down."""
        ticks = 0
        failing = False
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            ticks += 1
            down = not broadcast.pubsub_up()
            if ticks < _TICKS_WHILE_UP and not down:
                continue
            ticks = 0
            tenants = [feed.tenant for feed in self._feeds.values() if feed.is_established]
            try:
                counters = await database.run(journal.counters, tenants)
            except (DatabaseError, NotReady) as error:
                if not failing:
                    log.warning("feed_poll_failed error=%s", error)
                failing = True
                continue
            failing = False
            for tenant, counter in counters.items():
                # Looked up again, because the feed may have been closed and reopened meanwhile.
                feed = self._feeds.get(tenant)
                if feed is not None:
                    self._compare(feed, counter, at_once=down)

    def _compare(self, feed: TenantFeed, counter: int, *, at_once: bool) -> None:
        """An error in one tenant's feed ends that feed alone."""
        try:
            feed.compare(counter, at_once=at_once)
        except Exception as error:
            log.error("feed_failed tenant=%s error=%s", feed.tenant, redaction.described(error))
            feed.fail(error)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()
_hubs_lock = threading.Lock()


def current() -> Hub:
    """The running loop's hub."""
    loop = asyncio.get_running_loop()
    with _hubs_lock:
        hub = _hubs.get(loop)
        if hub is None:
            hub = _hubs[loop] = Hub()
        return hub
