"""Reads a session's events for one stream: first the stored ones, then live ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError

from sessions_app.core.base import database
from sessions_app.core.base.errors import NotReady, PositionPruned
from sessions_app.core.log import journal
from sessions_app.core.log.feed.chain import SessionChain
from sessions_app.core.log.journal.types import Event, Gap, SessionItem

if TYPE_CHECKING:
    from sessions_app.core.log.feed.tenant import TenantFeed

log = logging.getLogger(__name__)

_PAGE = 500
_RETRY_SECONDS = 1.0


class SessionReader:
    """The reader of one consumer, in one loop, with bounded memory: after an overflow it reads the journal again."""

    def __init__(self, feed: TenantFeed, session: int, after: int) -> None:
        self.session = session
        self._feed = feed
        self._chain = SessionChain(after)
        self._position_lost = False
        self._interrupted = False
        self._nudged = False
        self._read_again_at = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._taken: Sequence[Event] | None = None
        self.at_once: Callable[[Sequence[Event]], bool] | None = None
        """Called with events that arrive while ``next`` waits; if it returns True they are done, and ``next`` waits on."""

    async def next(self, timeout: float | None) -> Sequence[Event] | None:
        """The next events, in order and each once; None if there were none for ``timeout`` seconds.

        Raises PositionPruned if the next events were deleted, if a database crash lost events that were delivered, or if the
        feed has failed (another reader may continue from this position). While the database is down there are no events.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            if self._interrupted or self._nudged:
                self._nudged = False
                return None
            if self._position_lost:
                raise PositionPruned
            if (events := self._taken) is not None:
                self._taken = None
                return events
            if events := self._chain.drain():
                return events
            wake_at = until
            if self._chain.behind:
                if loop.time() >= self._read_again_at:
                    try:
                        await self.read()
                    except (DatabaseError, NotReady) as error:
                        log.warning("stream_read_failed: it is tried again: %s", error)
                        self._read_again_at = loop.time() + _RETRY_SECONDS
                    continue
                wake_at = self._read_again_at if until is None else min(until, self._read_again_at)
            if until is not None and loop.time() >= until:
                return None
            await self._wait(wake_at)

    async def read(self) -> None:
        """Read the next page from the journal into the queue, which must be empty."""
        self._chain.begin_read()
        try:
            page = await database.run_for(
                self._feed.tenant, journal.read_session, self._feed.tenant, self.session, self._chain.position, limit=_PAGE
            )
        except BaseException:
            self._chain.abandon_read()
            raise
        self._feed.establish(page.counter)
        # The feed offers everything after its base. If this read ended before the base, another read must follow.
        self._chain.end_read(page.events, page.counter, more=page.more or page.counter < self._feed.base)

    def interrupt(self) -> None:
        """Let ``next`` return None immediately, now and from now on."""
        self._interrupted = True
        if self._waiter is not None:
            _set(self._waiter)

    def nudge(self) -> None:
        """Let the current or next call of ``next`` return None immediately."""
        self._nudged = True
        if self._waiter is not None:
            _set(self._waiter)

    # What the feed calls

    def begin(self, items: Iterable[SessionItem], upto: int) -> None:
        """Start without reading the journal: ``items`` are all events after the reader's position, up to ``upto``."""
        self._chain.go_live()
        for item in items:
            self._chain.offer(item)
        self._chain.advance(upto)

    def offer(self, item: SessionItem) -> None:
        waiter = self._waiter
        if self.at_once is None or waiter is None or waiter.done() or self._position_lost or self._chain.is_ready:
            self._chain.offer(item)
        elif events := self._chain.pass_on(item):
            self._offer_at_once(self.at_once, events, waiter)
            return
        self._wake()

    def _offer_at_once(
        self, take: Callable[[Sequence[Event]], bool], events: Sequence[Event], waiter: asyncio.Future[None]
    ) -> None:
        try:
            is_done = take(events)
        except Exception:
            # The consumer gets the events and the error: it must not end the feed, which has other readers.
            is_done = False
        if not is_done:
            self._taken = events
            waiter.set_result(None)
        elif self._chain.behind:
            self._wake()

    def advance(self, upto: int) -> None:
        self._chain.advance(upto)
        self._wake()

    @property
    def delivered(self) -> int:
        return self._chain.delivered

    def check_gaps(self, gaps: Iterable[Gap]) -> None:
        """Check numbers that were lost in a crash: a reader that has delivered one of them cannot continue."""
        for gap in gaps:
            if gap.after < self._chain.delivered <= gap.upto:
                self._position_lost = True
            elif gap.after < self._chain.position <= gap.upto:
                self._chain.rewind()
        self._wake()

    def end(self) -> None:
        """The feed has failed."""
        self._position_lost = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (self._chain.is_ready or self._chain.behind or self._position_lost):
            waiter.set_result(None)

    async def _wait(self, until: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, _set, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
