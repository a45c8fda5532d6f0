"""All of a tenant's events for one taker, in the tenant's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sessions_app.core.log.journal.types import Event, Gap

if TYPE_CHECKING:
    from sessions_app.core.log.feed.tenant import TenantFeed

Deliver = Callable[[Sequence[Event], int], None]
"""Is called in the loop with the events that follow and the number up to which they are all there are."""


class TenantFollower:
    """Gives each event once, as soon as everything before it has been given. It keeps nothing: ``take`` deals with
    the events before it returns, and does not raise.

    ``position``: everything up to this number was given. ``lost`` is called when a crash of the database took
    something that was given: nobody who saw it can go on. ``ended`` is called when the feed has failed: nothing
    more is given, and the next follower gets another feed.
    """

    def __init__(self, take: Deliver, lost: Callable[[], None], ended: Callable[[], None]) -> None:
        self.position = 0
        self._take, self._lost, self._ended = take, lost, ended
        self._feed: TenantFeed | None = None

    def begin(self, feed: TenantFeed) -> None:
        """From here on; the feed is founded."""
        self._feed, self.position = feed, feed.position

    def expect(self, counter: int) -> None:
        """The journal is known to have got this far; if nothing is heard of it soon, it is read."""
        if self._feed is not None:
            self._feed.expect(counter)

    # What the feed calls

    def take(self, events: Sequence[Event], upto: int) -> None:
        if self._feed is not None and upto > self.position:
            self.position = upto
            self._take(events, upto)

    def end(self) -> None:
        self._ended()

    def check_gaps(self, gaps: Iterable[Gap]) -> None:
        if self._feed is not None and any(gap.after < self.position <= gap.upto for gap in gaps):
            self._lost()
