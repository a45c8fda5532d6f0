"""Counts concurrent use per name, such as a client address, up to a limit."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """At most ``most()`` slots per name at the same time. Names without slots take no memory."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Take a slot; False if all slots of the name are taken."""
        taken = self._taken.get(name, 0)
        if taken >= self._most():
            return False
        self._taken[name] = taken + 1
        return True

    def give_back(self, name: str) -> None:
        remaining = self._taken[name] - 1
        if remaining:
            self._taken[name] = remaining
        else:
            del self._taken[name]

    def __len__(self) -> int:
        """The number of names that have slots."""
        return len(self._taken)
