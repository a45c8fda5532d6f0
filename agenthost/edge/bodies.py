"""How many bytes of request bodies this process holds, in all and per sender."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Bodies:
    """At most ``most()`` bytes in all, and half of them for one owner. Used in one loop."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held: dict[Hashable, int] = {}
        self.held = 0

    def take(self, owner: Hashable, size: int) -> bool:
        """Count ``size`` more bytes; False if they do not fit, and then nothing is counted."""
        most, held = self._most(), self._held.get(owner, 0)
        if self.held + size > most or held + size > most // 2:
            return False
        self.held += size
        self._held[owner] = held + size
        return True

    def give_back(self, owner: Hashable, size: int) -> None:
        if not size:
            return
        self.held -= size
        left = self._held[owner] - size
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]
