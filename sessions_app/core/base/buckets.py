"""Token buckets: how fast something may happen on average, and how much of it at once. Pure: callers pass the time."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Fills with ``rate`` tokens a second and holds ``most``; it starts full."""

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
        """Seconds until there is a token; 0 if there is one."""
        self._fill(now)
        return max(0.0, (1 - self._left) / self._rate)

    def borrow(self, now: float) -> float:
        """Take a token, also one that is still to come. Seconds until it is there."""
        self._fill(now)
        self._left -= 1
        return max(0.0, -self._left / self._rate)

    def give_back(self) -> None:
        self._left = min(self._most, self._left + 1)


class Buckets:
    """A bucket for each name, for at most ``most`` names: the one that was not used for the longest time goes first."""

    def __init__(self, make: Callable[[], Bucket], most: int) -> None:
        self._make, self._most = make, most
        self._buckets: dict[str, Bucket] = {}

    def of(self, name: str) -> Bucket:
        bucket = self._buckets.pop(name, None) or self._make()
        while len(self._buckets) >= self._most:
            # Unused for so long, it is the fullest one, and a new bucket is full.
            del self._buckets[next(iter(self._buckets))]
        self._buckets[name] = bucket
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)

    def clear(self) -> None:
        self._buckets.clear()
