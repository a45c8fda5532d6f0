"""How much one client address may use at the same time."""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """At most ``most()`` for each name at the same time. Keeps nothing about names that have none."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Take a slot; False if the name has all of its slots."""
        taken = self._taken.get(name, 0)
        if taken >= self._most():
            return False
        self._taken[name] = taken + 1
        return True

    def give_back(self, name: str) -> None:
        left = self._taken[name] - 1
        if left:
            self._taken[name] = left
        else:
            del self._taken[name]

    def __len__(self) -> int:
        """How many names have slots."""
        return len(self._taken)
