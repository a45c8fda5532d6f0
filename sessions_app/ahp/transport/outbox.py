"""The bounded queue of frames that wait to be sent to one connection.

Pure: no clock, no socket. Answers and notifications are queued at once. Actions are numbered, in the tenant's order; while a
snapshot is read they are delayed, so that the snapshot is sent at its own position among them (R65).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

_FRAME_BYTES = 100
"""Approximate overhead of a queued frame, counted against the limit."""


@dataclass(frozen=True, slots=True)
class _Held:
    seq: int
    channel: Hashable
    text: str


_STEP = 64 * 1024
_AT_ONCE = 16 * 1024
"""Characters of a text that may be sent without being counted: a connection's socket buffers a few of them."""


class Unsent:
    """Memory of the texts that one tenant's connections have not sent yet, reserved in steps of 64 KiB.

    A text that many connections wait to send is in memory once, and counted once. ``take(size, only)``: whether so many more
    bytes may be reserved; ``only``: nothing is reserved yet. ``make_room``: called once when a text does not fit.
    """

    def __init__(
        self,
        take: Callable[[int, bool], bool] = lambda _size, _only: True,
        give_back: Callable[[int], None] = lambda _size: None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._take, self._give_back, self._make_room = take, give_back, make_room
        self._waiting: dict[int, tuple[int, int]] = {}
        """By the id of each text: the number of connections that have it queued, and its size."""
        self._bytes = 0
        self._counted = 0

    def add(self, text: str) -> bool:
        """Count a text; False if there is no room for it."""
        waiting, size = self._waiting.get(id(text), (0, 0))
        if not waiting:
            size = sys.getsizeof(text)
            if not self._fits(size):
                self._make_room()
                if not self._fits(size):
                    return False
            self._bytes += size
        self._waiting[id(text)] = waiting + 1, size
        return True

    def remove(self, text: str) -> None:
        waiting, size = self._waiting[id(text)]
        if waiting > 1:
            self._waiting[id(text)] = waiting - 1, size
            return
        del self._waiting[id(text)]
        # Not its present size: Python may have added a copy in UTF-8 to the text.
        self._bytes -= size
        if (less := self._counted - self._bytes // _STEP * _STEP) > 0:
            self._give_back(less)
            self._counted -= less

    def _fits(self, size: int) -> bool:
        more = (self._bytes + size) // _STEP * _STEP - self._counted
        if more > 0:
            if not self._take(more, not self._counted):
                return False
            self._counted += more
        return True


class Outbox:
    """The bounded queue of one connection.

    ``overflowed``: an action did not fit. Nothing is queued from then on and the connection has to be closed, because later
    actions must not be sent without it (R6). ``unsent``: counts the texts of all connections of the tenant. ``write``: sends a
    text at once, which needs no queue and wakes no task, or returns False if the client has to read first.
    """

    def __init__(
        self,
        most_bytes: int,
        on_news: Callable[[], None],
        unsent: Unsent | None = None,
        write: Callable[[str], bool] | None = None,
    ) -> None:
        self._most = most_bytes
        self._write = write
        self._on_news = on_news
        self._unsent = Unsent() if unsent is None else unsent
        self._ready: list[str] = []
        self._sending: list[str] = []
        """In reverse order."""
        self._current: str | None = None
        self._held: list[_Held] = []
        self._holding = False
        self._bytes = 0
        self.size = 0
        """Characters of texts that are queued or being sent."""
        self.overflowed = False

    @property
    def is_crowded(self) -> bool:
        """More than half full: no more requests of this client should be answered now."""
        return self._bytes > self._most // 2

    def put(self, text: str) -> None:
        """Queue an answer. Requests wait while the outbox is crowded, so there are never many."""
        if not self.overflowed and self._counted(text):
            self._push(text)
            self._on_news()

    def put_notice(self, text: str) -> None:
        """Queue a notification, which has no number."""
        if not self._is_written(text) and self._fits(text):
            self._push(text)
            self._on_news()

    def put_action(self, seq: int, channel: Hashable, text: str) -> None:
        """Queue an envelope. ``channel``: the one that it changes; None for a rejection, which no snapshot contains."""
        if self._is_written(text) or not self._fits(text):
            return
        if self._holding:
            self._held.append(_Held(seq, channel, text))
            self._bytes += len(text) + _FRAME_BYTES
        else:
            self._push(text)
            self._on_news()

    def next(self) -> str | None:
        """The next text to send, or None. The text before it has been sent."""
        if self._current is not None:
            self._uncount(self._current)
            self._current = None
        if not self._sending:
            self._sending, self._ready = self._ready[::-1], []
            self._bytes -= sum(len(text) + _FRAME_BYTES for text in self._sending)
        if self._sending:
            self._current = self._sending.pop()
        return self._current

    def overflow(self) -> None:
        """Drop all texts: the tenant's connections together have too much unsent, and this connection has the most."""
        if not self.overflowed:
            self.overflowed = True
            self._drop()
            self._on_news()

    def end(self) -> None:
        """Drop all texts: the connection has ended."""
        self.overflowed = True
        self._drop()
        if self._current is not None:
            self._uncount(self._current)
            self._current = None
        # They refer to the connection, which refers to this object.
        self._on_news, self._write = _do_nothing, None

    # --- around a snapshot ---

    def hold(self) -> None:
        """Delay all actions until ``release``."""
        assert not self._holding, "one snapshot at a time"
        self._holding = True

    def release(self, answer: str, positions: Mapping[Any, int] | None = None, followed: Collection[Hashable] = ()) -> None:
        """Queue ``answer`` at its position among the delayed actions.

        ``positions``: for each channel in the answer, the number up to which the answer includes its actions; all actions up to
        the highest of them are queued or delayed by now. None: the answer contains no states. ``followed``: channels to which
        the client was subscribed before; it gets their actions too, and then the state to which they lead.
        """
        self._holding = False
        if self.overflowed or not self._counted(answer):
            return
        held, self._held = self._held, []
        positions = positions or {}
        upto = max(positions.values(), default=-1)
        for each in held:
            self._bytes -= len(each.text) + _FRAME_BYTES
        after: list[_Held] = []
        for each in held:
            position = -1 if each.channel is None else positions.get(each.channel, -1)
            if each.seq > upto or (position >= 0 and each.seq > position):
                after.append(each)
            elif position < 0 or each.channel in followed:
                self._push(each.text)
        self._push(answer)
        for each in after:
            self._push(each.text)
        self._on_news()

    def _is_written(self, text: str) -> bool:
        """Send a text now, if nothing is to be sent before it and it is small."""
        if self._write is None or self._holding or self._ready or self._sending or self._current is not None or self.overflowed:
            return False
        return len(text) <= _AT_ONCE and self._write(text)

    def _fits(self, text: str) -> bool:
        """Whether a text fits; if not, the outbox overflows."""
        if self.overflowed:
            return False
        if self._bytes and self._bytes + len(text) > self._most:
            self.overflow()
            return False
        return self._counted(text)

    def _counted(self, text: str) -> bool:
        """Count a text; if there is no room for it, the outbox overflows."""
        if not self._unsent.add(text):
            self.overflow()
        elif self.overflowed:
            # This connection itself was dropped to make room.
            self._unsent.remove(text)
        else:
            self.size += len(text)
        return not self.overflowed

    def _uncount(self, text: str) -> None:
        self._unsent.remove(text)
        self.size -= len(text)

    def _drop(self) -> None:
        for text in (*self._ready, *self._sending, *(each.text for each in self._held)):
            self._uncount(text)
        self._ready.clear()
        self._sending.clear()
        self._held.clear()
        self._bytes = 0

    def _push(self, text: str) -> None:
        self._ready.append(text)
        self._bytes += len(text) + _FRAME_BYTES


def _do_nothing() -> None:
    pass
