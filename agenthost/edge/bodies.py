"""How many bytes this process holds for its clients, in all and per tenant: what they send, and large answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from django.conf import settings

_RESERVED = 8
_SMALL = 16


class Bodies:
    """At most ``most()`` bytes in all, and half of them for one owner. Used in one loop.

    The last eighth is for owners that hold no more than a sixteenth: without it, two owners could hold everything together.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held: dict[Hashable, int] = {}
        self.held = 0

    def take(self, owner: Hashable, size: int, *, alone: bool = False) -> bool:
        """Count ``size`` more bytes; False if they do not fit, and then nothing is counted.

        ``alone``: they fit in any case if the owner holds nothing.
        """
        held = self._held.get(owner, 0)
        if not (alone and not held) and not self._fits(held, size):
            return False
        self.held += size
        self._held[owner] = held + size
        return True

    def _fits(self, held: int, size: int) -> bool:
        most = self._most()
        if self.held + size > most or held + size > most // 2:
            return False
        return self.held + size <= most - most // _RESERVED or held + size <= most // _SMALL

    def give_back(self, owner: Hashable, size: int) -> None:
        if not size:
            return
        self.held -= size
        left = self._held[owner] - size
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]


OF_PROCESS = Bodies(lambda: int(settings.AGENTHOST_BODIES_BYTES))
"""Bodies of requests and messages of WebSockets."""
ANSWERS = Bodies(lambda: int(settings.AGENTHOST_ANSWERS_BYTES))
"""Answers that their clients have not read yet."""
