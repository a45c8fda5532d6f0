"""Keys that no tenant has: remembered for a moment without a query, and counted for the address that shows them.

Each process counts for itself. Nothing here is written to the database or shared over Redis: somebody who guesses keys must
cost as little as possible.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sessions_app.core.base.buckets import Bucket, Buckets
from sessions_app.core.base.errors import NotAuthenticated, TooManyWrongKeys

CACHED_SECONDS = 1.0
"""A key that is issued works after this time at the latest, wherever it was tried before."""
_MOST_REMEMBERED = 10_000
_MOST_ADDRESSES = 10_000


class WrongKeys:
    """``per_minute`` wrong keys of one address are judged, as many at once, and 0 means any number."""

    def __init__(self, per_minute: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._until: dict[str, float] = {}
        self._buckets = Buckets(self._new_bucket, _MOST_ADDRESSES)

    def before_lookup(self, digest: str, address: str) -> None:
        """Count an unknown key for its address. NotAuthenticated if it was wrong a moment ago.

        ``give_back`` follows if the lookup does not find that the key is wrong.
        """
        now = self._clock()
        if self._per_minute():
            bucket = self._buckets.of(address)
            seconds = bucket.wait(now)
            if seconds:
                raise TooManyWrongKeys(math.ceil(seconds))
            bucket.borrow(now)
        if self._until.get(digest, 0.0) > now:
            raise NotAuthenticated

    def give_back(self, address: str) -> None:
        if self._per_minute():
            self._buckets.of(address).give_back()

    def remember(self, digest: str) -> None:
        """The key was looked up and is wrong."""
        now = self._clock()
        self._until.pop(digest, None)
        # In the order of their ends, because all are remembered equally long.
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now and len(self._until) < _MOST_REMEMBERED:
                break
            del self._until[oldest]
        self._until[digest] = now + CACHED_SECONDS

    def _new_bucket(self) -> Bucket:
        per_minute = self._per_minute()
        return Bucket(per_minute / 60, per_minute)

    def clear(self) -> None:
        self._until.clear()
        self._buckets.clear()
