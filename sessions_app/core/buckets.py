"""Token buckets: how fast something may happen on average, and how much of it at once. Pure: callers pass the time."""

from __future__ import annotations


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
