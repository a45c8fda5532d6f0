"""A tenant's feed in one loop: live announcements, completed from the journal when some are lost.

A feed subscribes to its tenant's group and waits for the acknowledgement; only then its readers read the journal. So every
event that is stored after a read is announced to the feed, or its loss is detected: by a hole in the numbers, by a loss
that the pub/sub transport reports, or by the tenant's counter, which hub.py polls. A reader whose position is still covered
by the feed's recent announcements, as after a turn was just accepted, reads nothing.

Each reader of a session is offered announcements as they arrive and orders them with its own chain. For followers of the
whole tenant the feed keeps the tenant's order (``order``): its position is the number up to which everything has arrived.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from django.db import Error as DatabaseError

from sessions_app.core.base import database, metrics, redaction, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.feed.follower import TenantFollower
from sessions_app.core.log.feed.order import TenantOrder, in_order
from sessions_app.core.log.feed.reader import SessionReader
from sessions_app.core.log.feed.recent import Recent
from sessions_app.core.log.journal.types import Announcement, Event, SessionItem, TenantRead

log = logging.getLogger(__name__)

_HOLE_SECONDS = 0.05
_PAGE = 1000
_MAX_EARLY = 2000
_ERA_BITS = 20
"""After a database crash a counter continues after the next multiple of 2^20 (see the journal), so there may be a gap
between numbers on both sides of such a multiple."""


class TenantFeed:
    """The feed of one tenant in one loop, with its readers (of sessions) and followers (of the tenant)."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, list[SessionReader]] = {}
        self._followers: list[TenantFollower] = []
        self._order: TenantOrder | None = None
        self._recent = Recent(0)
        self.base = 0
        # Announcements to handle later: the position is not known yet, or there may be a gap before them.
        self._early: list[Announcement] = []
        self._at_a_gap = False
        self._missed = False
        self._counter_before: int | None = None
        self._hole_timer: asyncio.TimerHandle | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._failed = False
        self._listening = supervision.task(self._listen(), f"feed {tenant}", instead=self.fail)

    # Readers

    async def joined(self) -> None:
        """Wait until the subscription is active and all later announcements arrive."""
        await asyncio.shield(self._joined)

    def add(self, reader: SessionReader) -> None:
        self._readers.setdefault(reader.session, []).append(reader)

    def remove(self, reader: SessionReader) -> bool:
        """Remove a reader; True if the feed has none left."""
        of_session = self._readers[reader.session]
        of_session.remove(reader)
        if not of_session:
            del self._readers[reader.session]
        return self._is_alone

    def add_follower(self, follower: TenantFollower) -> None:
        """Add a follower, which gets everything in the tenant's order once it has begun."""
        self._followers.append(follower)

    def remove_follower(self, follower: TenantFollower) -> bool:
        """Remove a follower; True if the feed has no readers left."""
        self._followers.remove(follower)
        return self._is_alone

    @property
    def position(self) -> int:
        """The number up to which all of the tenant's events have arrived; the feed must be established."""
        assert self._order is not None
        return self._order.position

    @property
    def _is_alone(self) -> bool:
        return not self._readers and not self._followers

    def begin(self, reader: SessionReader) -> bool:
        """Start a reader from the recent announcements; False if they do not cover its position, so it must read."""
        if self._order is None or self._at_a_gap or reader.delivered < self._recent.since:
            return False
        reader.begin(self._recent.of(reader.session, reader.delivered), self._order.position)
        return True

    def close(self) -> None:
        self._listening.cancel()
        if self._catching_up is not None:
            self._catching_up.cancel()
        if self._hole_timer is not None:
            self._hole_timer.cancel()

    def fail(self, error: BaseException | None) -> None:
        """Stop after an error: readers and followers end, and later ones get a new feed."""
        if self._failed:
            return
        self._failed = True
        self.close()
        if not self._joined.done():
            self._joined.set_exception(error if isinstance(error, Exception) else NotReady())
            # Retrieved here, because there may be no caller that waits for it.
            self._joined.exception()
        for reader in self._all_readers():
            reader.end()
        for follower in list(self._followers):
            follower.end()

    def establish(self, counter: int) -> None:
        """The journal was read up to this number; the first read sets the feed's start."""
        if self._order is None:
            self.base = counter
            self._order = TenantOrder(counter)
            self._recent = Recent(counter)
            self._take_early()

    @property
    def is_listening(self) -> bool:
        return not self._failed and not self._listening.done()

    def expect(self, counter: int) -> None:
        """The journal has events up to this number; their announcements may still arrive."""
        if self._order is None or self._order.position < counter:
            self._loop.call_later(_HOLE_SECONDS, self._look_for, counter)

    def _look_for(self, counter: int) -> None:
        if not self._listening.done() and (self._order is None or self._order.position < counter):
            self.catch_up()

    @property
    def is_established(self) -> bool:
        return self._order is not None

    # What comes in

    async def _listen(self) -> None:
        async with broadcast.listen_tenant(self.tenant) as listener:
            self._joined.set_result(None)
            while True:
                try:
                    received = await listener.receive()
                except Exception:
                    # Another release may use a format that this one cannot read.
                    log.exception("announcement_not_understood tenant=%s", self.tenant)
                    self.catch_up()
                    continue
                metrics.ANNOUNCEMENTS.inc(len(received.announcements))
                for announcement in received.announcements:
                    self._take(announcement)
                if received.missed:
                    self.catch_up()

    def _take(self, announcement: Announcement) -> None:
        order = self._order
        if order is None or self._at_a_gap:
            self._keep_early(announcement)
        elif announcement.upto <= order.position:
            pass
        elif announcement.upto >> _ERA_BITS != order.position >> _ERA_BITS:
            self._at_a_gap = True
            self._keep_early(announcement)
            self.catch_up()
        else:
            for item in announcement.items:
                for reader in self._readers.get(item.session, ()):
                    reader.offer(item)
            self._recent.add(announcement)
            self._follow(order.accept(announcement, self._loop.time()))
            self._watch_hole(order)

    def _follow(self, released: Sequence[Announcement]) -> None:
        for follower in self._followers:
            for announcement in released:
                follower.take(in_order(announcement, follower.position), announcement.upto)

    def _keep_early(self, announcement: Announcement) -> None:
        if len(self._early) < _MAX_EARLY:
            self._early.append(announcement)
        else:
            self._missed = True

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for announcement in early:
            self._take(announcement)
        if self._missed:
            self.catch_up()

    def _watch_hole(self, order: TenantOrder) -> None:
        if order.has_hole and self._hole_timer is None:
            self._hole_timer = self._loop.call_later(_HOLE_SECONDS, self._look_at_hole, order)

    def _look_at_hole(self, order: TenantOrder) -> None:
        self._hole_timer = None
        since = order.hole_since
        if since is None:
            return
        left = since + _HOLE_SECONDS - self._loop.time()
        if left <= 0:
            self.catch_up()
        else:
            self._hole_timer = self._loop.call_later(left, self._look_at_hole, order)

    def compare(self, counter: int, *, at_once: bool) -> None:
        """Compare the position with the tenant's current counter. The feed must reach it within a second, or ``at_once``."""
        expected = counter if at_once else self._counter_before
        self._counter_before = counter
        if self._at_a_gap or (self._order is not None and expected is not None and self._order.position < expected):
            self.catch_up()

    # The journal

    def catch_up(self) -> None:
        """Read the journal from the position; if a read is in progress, read again after it."""
        self._missed = True
        if self._order is not None and self._catching_up is None and not self._failed:
            metrics.ANNOUNCEMENTS_MISSED.inc()
            self._catching_up = self._loop.create_task(self._catch_up(self._order))

    async def _catch_up(self, order: TenantOrder) -> None:
        try:
            while self._missed:
                self._missed = False
                await self._read_journal(order)
                self._at_a_gap = False
                self._take_early()
            self._watch_hole(order)
        except (DatabaseError, NotReady) as error:
            # The next comparison of counters starts another attempt.
            log.warning("feed_read_failed tenant=%s: %s", self.tenant, error)
        except Exception as error:
            log.error("feed_failed tenant=%s: %s", self.tenant, redaction.described(error))
            self.fail(error)
        finally:
            self._catching_up = None

    async def _read_journal(self, order: TenantOrder) -> None:
        more = True
        while more:
            after = order.position
            page = await database.run_for(self.tenant, journal.read_tenant, self.tenant, after, limit=_PAGE)
            if page.upto >> _ERA_BITS != after >> _ERA_BITS:
                shown = [reader.delivered for reader in self._all_readers()] + [each.position for each in self._followers]
                lowest = min(shown, default=after)
                gaps = await database.run_for(self.tenant, journal.gaps, self.tenant, lowest - 1)
                for reader in self._all_readers():
                    reader.check_gaps(gaps)
                for follower in self._followers:
                    follower.check_gaps(gaps)
            self._deliver_page(page, after, order)
            more = page.more

    def _deliver_page(self, page: TenantRead, after: int, order: TenantOrder) -> None:
        by_session: dict[int, list[Event]] = {}
        for event in page.events:
            if event.session in self._readers:
                by_session.setdefault(event.session, []).append(event)
        for reader in self._all_readers():
            # Events before a reader's start are read by the reader itself, later ones are offered by the feed.
            reader.advance(order.position)
        for session, events in by_session.items():
            for reader in self._readers[session]:
                reader.offer(SessionItem(session, after, events))
        for follower in self._followers:
            follower.take([event for event in page.events if event.seq > follower.position], page.upto)
        self._follow(order.read_through(page.upto))
        self._recent.forget(page.upto)
        for reader in self._all_readers():
            reader.advance(page.upto)

    def _all_readers(self) -> Iterator[SessionReader]:
        for of_session in self._readers.values():
            yield from of_session
