"""One stream's way to a session's events: what is stored first, then what happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
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
    """Belongs to one loop and one consumer. Whatever the consumer does, memory stays bounded: a reader
    that overflowed reads the journal when its consumer comes back."""

    def __init__(self, feed: TenantFeed, session: int, after: int) -> None:
        self.session = session
        self._feed = feed
        self._chain = SessionChain(after)
        self._position_lost = False
        self._interrupted = False
        self._read_again_at = 0.0
        self._waiter: asyncio.Future[None] | None = None

    async def next(self, timeout: float | None) -> list[Event] | None:
        """The events that follow, in order, each once; None if there were none for ``timeout`` seconds.

        Raises PositionPruned if what follows is not kept any more, or a crash of the database took what
        this reader was given, or its feed has failed: another reader may go on from there. While the database
        is away there is no news.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            if self._interrupted:
                return None
            if self._position_lost:
                raise PositionPruned
            if events := self._chain.drain():
                return events
            wake_at = until
            if self._chain.behind:
                if loop.time() >= self._read_again_at:
                    try:
                        await self.read()
                    except (DatabaseError, NotReady) as error:
                        log.warning("a stream could not read the journal and will try again: %s", error)
                        self._read_again_at = loop.time() + _RETRY_SECONDS
                    continue
                wake_at = self._read_again_at if until is None else min(until, self._read_again_at)
            if until is not None and loop.time() >= until:
                return None
            await self._wait(wake_at)

    async def read(self) -> None:
        """Queue what the journal has, or the first page of it. Nothing may be queued when this is called."""
        self._chain.begin_read()
        try:
            page = await database.run_for(
                self._feed.tenant, journal.read_session, self._feed.tenant, self.session, self._chain.position, limit=_PAGE
            )
        except BaseException:
            self._chain.abandon_read()
            raise
        self._feed.establish(page.counter)
        # The feed answers for everything behind its base; a read that saw less leaves something to nobody.
        self._chain.end_read(page.events, page.counter, more=page.more or page.counter < self._feed.base)

    def interrupt(self) -> None:
        """``next`` returns at once, with nothing, now and from here on."""
        self._interrupted = True
        if self._waiter is not None:
            _set(self._waiter)

    # What the feed calls

    def begin(self, heard: Iterable[SessionItem], upto: int) -> None:
        """Follow without reading: ``heard`` is all that came behind the reader's position, up to ``upto``."""
        self._chain.go_live()
        for item in heard:
            self._chain.offer(item)
        self._chain.advance(upto)

    def offer(self, item: SessionItem) -> None:
        self._chain.offer(item)
        self._wake()

    def advance(self, upto: int) -> None:
        self._chain.advance(upto)
        self._wake()

    @property
    def delivered(self) -> int:
        return self._chain.delivered

    def check_gaps(self, gaps: Iterable[Gap]) -> None:
        """Some numbers were lost after they had been shown. Whoever was given one of them cannot go on."""
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
