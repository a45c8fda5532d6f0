"""A short cache of unknown API keys, and a rate limit on them per client address.

Each process has its own. Nothing is written to the database or to Redis: guessing keys must cost the server as little as
possible.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sessions_app.core.base.buckets import Bucket, Buckets
from sessions_app.core.base.errors import NotAuthenticated, TooManyWrongKeys

CACHED_SECONDS = 1.0
"""A key that was tried before it was issued works after this time at the latest."""
_MOST_REMEMBERED = 10_000
_MOST_ADDRESSES = 10_000


class WrongKeys:
    """``per_minute``: the unknown keys of one address that are looked up per minute, also in one burst; 0 means no limit."""

    def __init__(self, per_minute: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._until: dict[str, float] = {}
        self._buckets = Buckets(self._new_bucket, _MOST_ADDRESSES)

    def before_lookup(self, digest: str, address: str) -> None:
        """Count a key before it is looked up. Raises TooManyWrongKeys, or NotAuthenticated if the key is cached as unknown.

        Call ``give_back`` unless the lookup finds that the key is unknown.
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
        """Cache a key that was looked up and is unknown."""
        now = self._clock()
        self._until.pop(digest, None)
        # In the order of expiry, because all are cached equally long.
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
