"""Delivers a tenant's events, in order, to one callback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sessions_app.core.log.journal.types import Event, Gap

if TYPE_CHECKING:
    from sessions_app.core.log.feed.tenant import TenantFeed

Deliver = Callable[[Sequence[Event], int], None]
"""Called in the loop with the next events and the number up to which they are complete."""


class TenantFollower:
    """Delivers each event once, as soon as everything before it was delivered, and buffers nothing.

    ``deliver`` processes the events before it returns, and does not raise. ``position``: everything up to this number was
    delivered. ``lost`` is called when a database crash lost delivered events: clients that received them cannot continue.
    ``ended`` is called when the feed has failed: nothing more is delivered, and the next follower gets another feed.
    """

    def __init__(self, deliver: Deliver, lost: Callable[[], None], ended: Callable[[], None]) -> None:
        self.position = 0
        self._deliver, self._lost, self._ended = deliver, lost, ended
        self._feed: TenantFeed | None = None

    def begin(self, feed: TenantFeed) -> None:
        """Start at the feed's position; the feed is established."""
        self._feed, self.position = feed, feed.position

    def expect(self, counter: int) -> None:
        """The journal has events up to this number; if they are not announced soon, the feed reads them."""
        if self._feed is not None:
            self._feed.expect(counter)

    # What the feed calls

    def take(self, events: Sequence[Event], upto: int) -> None:
        if self._feed is not None and upto > self.position:
            self.position = upto
            self._deliver(events, upto)

    def end(self) -> None:
        self._ended()

    def check_gaps(self, gaps: Iterable[Gap]) -> None:
        if self._feed is not None and any(gap.after < self.position <= gap.upto for gap in gaps):
            self._lost()
