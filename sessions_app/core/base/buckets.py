"""Token buckets for rate limits: an average rate and a burst size. Pure: callers pass the time."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Refills with ``rate`` tokens a second up to ``most``; it starts full."""

    __slots__ = ("_filled", "_left", "_most", "_rate")

    def __init__(self, rate: float, most: float) -> None:
        self._rate, self._most = rate, most
        self._left = most
        self._filled: float | None = None

    def _fill(self, now: float) -> None:
        if self._filled is not None:
            self._left = min(self._most, self._left + (now - self._filled) * self._rate)
        self._filled = now

    def wait(self, now: float) -> float:
        """Seconds until a token is available; 0 if there is one."""
        self._fill(now)
        return max(0.0, (1 - self._left) / self._rate)

    def borrow(self, now: float) -> float:
        """Take a token, in advance if there is none. Returns the seconds until it is available."""
        self._fill(now)
        self._left -= 1
        return max(0.0, -self._left / self._rate)

    def give_back(self) -> None:
        self._left = min(self._most, self._left + 1)


class Buckets:
    """A bucket for each name, for at most ``most`` names: the least recently used one is removed first."""

    def __init__(self, make: Callable[[], Bucket], most: int) -> None:
        self._make, self._most = make, most
        self._buckets: dict[str, Bucket] = {}

    def of(self, name: str) -> Bucket:
        bucket = self._buckets.pop(name, None) or self._make()
        while len(self._buckets) >= self._most:
            # The least recently used bucket is the fullest, and a new bucket is full: little is lost.
            del self._buckets[next(iter(self._buckets))]
        self._buckets[name] = bucket
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)

    def clear(self) -> None:
        self._buckets.clear()
