"""What one process follows of one tenant: announcements live, and the journal where they fail.

A feed joins its tenant's group and waits for the ack; only then its readers read the journal. So
whatever is stored after a read is announced to the feed, or found missing: by a hole in the numbers,
by the carrier's word that something was lost, or by the tenant's counter, which hub.py looks at.
A reader that begins where the feed remembers everything since, as one of a turn just accepted does,
reads nothing.

Readers of sessions follow their session's chain and are offered everything as it comes. The feed keeps
the tenant's order besides (``order``): its position is how far everything is known to have arrived, and
what it releases is what a reader of all the tenant's sessions is to be given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from django.db import Error as DatabaseError

from sessions_app.core.base import database, redaction, supervision
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
"""After a crash of the database a counter goes on behind the next multiple of 2^20 (see the journal),
so numbers on both sides of one may have a gap between them."""


class TenantFeed:
    """Lives in one loop, from its tenant's first reader there until the last one leaves."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, list[SessionReader]] = {}
        self._followers: list[TenantFollower] = []
        self._order: TenantOrder | None = None
        self._recent = Recent(0)
        self.base = 0
        # Not to be looked at yet: the position is not known, or a gap may stand between it and them.
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
        """Until every announcement from now on arrives."""
        await asyncio.shield(self._joined)

    def add(self, reader: SessionReader) -> None:
        self._readers.setdefault(reader.session, []).append(reader)

    def remove(self, reader: SessionReader) -> bool:
        """True if that was the last one."""
        of_session = self._readers[reader.session]
        of_session.remove(reader)
        if not of_session:
            del self._readers[reader.session]
        return self._is_alone

    def add_follower(self, follower: TenantFollower) -> None:
        """From when it begins, it is given everything in the tenant's order."""
        self._followers.append(follower)

    def remove_follower(self, follower: TenantFollower) -> bool:
        """True if nobody is left."""
        self._followers.remove(follower)
        return self._is_alone

    @property
    def position(self) -> int:
        """Everything of the tenant up to here has been heard; the feed is founded."""
        assert self._order is not None
        return self._order.position

    @property
    def _is_alone(self) -> bool:
        return not self._readers and not self._followers

    def begin(self, reader: SessionReader) -> bool:
        """Give a reader all that was heard behind its position; False: that is not remembered, it has to read."""
        if self._order is None or self._at_a_gap or reader.delivered < self._recent.since:
            return False
        reader.begin(self._recent.of(reader.session), self._order.position)
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
            # Retrieved here, because there may be nobody that waits for it.
            self._joined.exception()
        for reader in self._all_readers():
            reader.end()
        for follower in list(self._followers):
            follower.end()

    def establish(self, counter: int) -> None:
        """A reader has read the journal up to this number; the first one that has founds the feed on it."""
        if self._order is None:
            self.base = counter
            self._order = TenantOrder(counter)
            self._recent = Recent(counter)
            self._take_early()

    @property
    def is_listening(self) -> bool:
        return not self._failed and not self._listening.done()

    def expect(self, counter: int) -> None:
        """Somebody has seen the journal at this number; what was announced up to it may still be on its way."""
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
                    # Another release may say things in a way that we cannot read.
                    log.exception("an announcement to tenant %s was not understood", self.tenant)
                    self.catch_up()
                    continue
                for announcement in received.announcements:
                    self._take(announcement)
                if received.missed:
                    self.catch_up()
                # With more there already, hearing it would not let anybody else run.
                await asyncio.sleep(0)

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
        """The tenant's counter, looked up now. A feed has a second to get there, ``at_once``: none."""
        expected = counter if at_once else self._counter_before
        self._counter_before = counter
        if self._at_a_gap or (self._order is not None and expected is not None and self._order.position < expected):
            self.catch_up()

    # The journal

    def catch_up(self) -> None:
        """Read the journal from the position, now or once more after the reading that goes on."""
        self._missed = True
        if self._order is not None and self._catching_up is None and not self._failed:
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
            # The next look at the counters finds the feed where it is, and tries again.
            log.warning("the feed of tenant %s could not read the journal: %s", self.tenant, error)
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
            # Readers answer for what was before them, the feed for the rest up to its position.
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
