"""One timer for many streams or connections of a loop that each have to act when nothing has happened for a while."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from typing import Protocol
from weakref import WeakKeyDictionary

_SLACK = 16
"""A member is due up to this part of the period early, so that many members need few wake-ups."""


class Member(Protocol):
    def due(self) -> None:
        """Called once, when the period is over; ``put`` begins another one."""


class SharedTimer:
    """The members of one loop with the same period, in the order in which they are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds
        self._due_at: OrderedDict[Member, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, member: Member) -> None:
        """The member is due a period from now, and not earlier."""
        self._due_at[member] = self._loop.time() + self._seconds
        self._due_at.move_to_end(member)
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def remove(self, member: Member) -> None:
        self._due_at.pop(member, None)
        if not self._due_at and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Call the members that are due. ``put`` does not set the timer anew, so there may be none."""
        self._timer = None
        until = self._loop.time() + self._seconds / _SLACK
        while self._due_at:
            member, due_at = next(iter(self._due_at.items()))
            if due_at > until:
                self._timer = self._loop.call_at(due_at, self._look)
                return
            del self._due_at[member]
            member.due()


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, SharedTimer]] = WeakKeyDictionary()
_lock = threading.Lock()


def of_loop(seconds: float) -> SharedTimer:
    """The running loop's timer for this period."""
    loop = asyncio.get_running_loop()
    with _lock:
        periods = _loops.setdefault(loop, {})
    timer = periods.get(seconds)
    if timer is None:
        timer = periods[seconds] = SharedTimer(loop, seconds)
    return timer
