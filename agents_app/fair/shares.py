"""Fair-share policy: which owner may take one of a limited number of slots, and which owner is next.

Pure: no clock, no lock, no loop. Used for slots of a loop (slots.py), threads (threads.py) and the runs of a worker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W", bound=Hashable)

_RESERVED = 8
"""One in eight slots is reserved for owners that hold none."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Limits per owner: at most ``most`` of ``slots``, and none but its first one of the reserved slots.

    Without the reserved slots, two owners could hold all slots together.
    """

    slots: int
    most: int

    def __post_init__(self) -> None:
        if self.slots < 1 or self.most < 1:
            raise ValueError(f"slots: {self.slots}, most: {self.most}; each must be at least 1")

    @staticmethod
    def half(slots: int) -> Shares:
        """Limits that let one owner hold at most half of the slots."""
        return Shares(slots, max(1, slots // 2))

    @property
    def unreserved(self) -> int:
        return self.slots - -(-self.slots // _RESERVED) if self.slots > 1 else self.slots

    def is_crowded(self, busy: int) -> bool:
        """Whether only reserved slots are free."""
        return busy >= self.unreserved

    def allowed(self, busy: int) -> int:
        """How many slots one owner may hold, including the one that it requests, while ``busy`` slots are in use."""
        if busy >= self.slots:
            return 0
        return 1 if self.is_crowded(busy) else self.most

    def available(self, busy: int) -> int:
        """The number of free slots that are not reserved."""
        return max(0, (self.slots if self.is_crowded(busy) else self.unreserved) - busy)


class FairShares(Generic[W]):
    """The slots in use and the queue for free ones, by owner.

    A free slot goes to the owner that holds the fewest; owners that hold equally many take turns, and the requests of
    one owner keep their order. ``limits``: smaller shares of single owners.
    """

    def __init__(self, shares: Shares, limits: Mapping[Hashable, int] | None = None) -> None:
        self.shares = shares
        self.busy = 0
        self._limits = dict(limits or {})
        self._held: dict[Hashable, int] = {}
        # Owners that hold equally many slots are served in this order.
        self._waiting: OrderedDict[Hashable, OrderedDict[W, None]] = OrderedDict()

    def held(self, owner: Hashable) -> int:
        return self._held.get(owner, 0)

    @property
    def waiting(self) -> list[W]:
        """All waiters; those of one owner in their order."""
        return [waiter for line in self._waiting.values() for waiter in line]

    def take(self, owner: Hashable) -> bool:
        """Take a slot at once. False: none is free for this owner, and it may ``wait``."""
        if owner in self._waiting or not self._fits(owner):
            return False
        self._give(owner)
        return True

    def wait(self, owner: Hashable, waiter: W) -> None:
        """Wait for a slot: ``next`` returns the waiter when it has one."""
        self._waiting.setdefault(owner, OrderedDict())[waiter] = None

    def withdraw(self, owner: Hashable, waiter: W) -> bool:
        """Remove a waiter. False: it is not waiting, and may hold a slot already."""
        line = self._waiting.get(owner)
        if line is None or waiter not in line:
            return False
        del line[waiter]
        if not line:
            del self._waiting[owner]
        return True

    def give_back(self, owner: Hashable) -> None:
        """One of the owner's slots is free again; call ``next`` until it returns None."""
        self.busy -= 1
        left = self._held[owner] - 1
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]

    def next(self) -> W | None:
        """Give a free slot to the next waiter and return it; None if no waiter may have one."""
        if not self._waiting or self.shares.allowed(self.busy) == 0:
            return None
        ready = [owner for owner in self._waiting if self._fits(owner)]
        if not ready:
            return None
        owner = min(ready, key=self.held)
        line = self._waiting[owner]
        waiter, _ = line.popitem(last=False)
        if line:
            self._waiting.move_to_end(owner)
        else:
            del self._waiting[owner]
        self._give(owner)
        return waiter

    def _fits(self, owner: Hashable) -> bool:
        return self.held(owner) < min(self.shares.allowed(self.busy), self._limits.get(owner, self.shares.slots))

    def _give(self, owner: Hashable) -> None:
        self.busy += 1
        self._held[owner] = self.held(owner) + 1
