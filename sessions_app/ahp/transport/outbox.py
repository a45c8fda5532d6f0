"""What waits to be sent to one connection: in order, bounded, and held back while a snapshot is read.

Pure: no clock, no socket. Answers and notifications go out as they come. Actions carry numbers and keep the tenant's
order; around a snapshot they are held, so that the snapshot stands at its own number among them (R65).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

_FRAME_BYTES = 100
"""What a frame without its text counts against the bound."""


@dataclass(frozen=True, slots=True)
class _Held:
    seq: int
    key: int | None
    text: str


_STEP = 64 * 1024


class Unsent:
    """The texts that one tenant's connections have not sent yet, counted in steps of 64 KiB: less is not counted.

    A text that waits for many connections is in memory once, and counted once. ``take``: whether so many more bytes may
    be held; ``only``: nothing else is counted here. ``make_room``: called once when a text does not fit.
    """

    def __init__(
        self,
        take: Callable[[int, bool], bool] = lambda _size, _only: True,
        give_back: Callable[[int], None] = lambda _size: None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._take, self._give_back, self._make_room = take, give_back, make_room
        self._waiting: dict[int, tuple[int, int]] = {}
        """For each text, by its id: how many connections it waits for, and its size."""
        self._bytes = 0
        self._counted = 0

    def add(self, text: str) -> bool:
        """False if there is no room for it."""
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
        # Its size now may be another one: Python keeps some texts in UTF-8 as well.
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
    """``overflowed``: an action did not fit. Nothing is taken from then on: the connection has to be closed, because
    what comes later may not be sent without it (R6). ``unsent``: counts the texts of all connections of the tenant."""

    def __init__(self, most_bytes: int, on_news: Callable[[], None], unsent: Unsent | None = None) -> None:
        self._most = most_bytes
        self._on_news = on_news
        self._unsent = Unsent() if unsent is None else unsent
        self._ready: deque[str] = deque()
        self._sending: deque[str] = deque()
        self._current: str | None = None
        self._held: list[_Held] = []
        self._holding = False
        self._bytes = 0
        self.size = 0
        """Characters that are not sent yet; of a text that is being sent, all."""
        self.overflowed = False

    @property
    def is_crowded(self) -> bool:
        """More than half full: whoever asks for answers may wait before asking for more."""
        return self._bytes > self._most // 2

    def put(self, text: str) -> None:
        """An answer. Who asks waits while it is crowded here, so there are never many."""
        if not self.overflowed and self._counted(text):
            self._push(text)
            self._on_news()

    def put_notice(self, text: str) -> None:
        """A notification, which is bound to no number."""
        if self._fits(text):
            self._push(text)
            self._on_news()

    def put_action(self, seq: int, key: int | None, text: str) -> None:
        """An envelope. ``key``: the resource it changes; None: it is a rejection, which no snapshot holds."""
        if not self._fits(text):
            return
        if self._holding:
            self._held.append(_Held(seq, key, text))
            self._bytes += len(text) + _FRAME_BYTES
        else:
            self._push(text)
            self._on_news()

    def next(self) -> str | None:
        """The next text to send; None if none may go out now. The one before it has been sent."""
        if self._current is not None:
            self._uncount(self._current)
            self._current = None
        if not self._sending:
            self._sending, self._ready = self._ready, self._sending
            self._bytes -= sum(len(text) + _FRAME_BYTES for text in self._sending)
        if self._sending:
            self._current = self._sending.popleft()
        return self._current

    def overflow(self) -> None:
        """Drop what waits: the tenant's connections together have too much unsent, and this one the most."""
        if not self.overflowed:
            self.overflowed = True
            self._drop()
            self._on_news()

    def end(self) -> None:
        """The connection has ended: nothing is sent any more."""
        self.overflowed = True
        self._drop()
        if self._current is not None:
            self._uncount(self._current)
            self._current = None

    # --- around a snapshot ---

    def hold(self) -> None:
        """Keep back every action from here on, until ``release``."""
        assert not self._holding, "one snapshot at a time"
        self._holding = True

    def release(self, answer: str, floors: Mapping[int, int] | None = None, known: Collection[int] = ()) -> None:
        """Send ``answer``, at its place among the actions that were held.

        ``floors``: for each resource that the answer tells of, the number it tells everything up to. All actions up
        to the highest of them are here by now. Without floors the answer is bound to no number. ``known``: those of
        them that the peer followed before; it is told the actions too, and then the state that they lead to.
        """
        self._holding = False
        if self.overflowed or not self._counted(answer):
            return
        held, self._held = self._held, []
        floors = floors or {}
        upto = max(floors.values(), default=-1)
        for each in held:
            self._bytes -= len(each.text) + _FRAME_BYTES
        after: list[_Held] = []
        for each in held:
            floor = -1 if each.key is None else floors.get(each.key, -1)
            if each.seq > upto or (floor >= 0 and each.seq > floor):
                after.append(each)
            elif floor < 0 or each.key in known:
                self._push(each.text)
        self._push(answer)
        for each in after:
            self._push(each.text)
        self._on_news()

    def _fits(self, text: str) -> bool:
        """What does not fit is the end: nothing may come after it."""
        if self.overflowed:
            return False
        if self._bytes and self._bytes + len(text) > self._most:
            self.overflow()
            return False
        return self._counted(text)

    def _counted(self, text: str) -> bool:
        """Count a text that is to be sent; what does not fit is the end."""
        if not self._unsent.add(text):
            self.overflow()
        elif self.overflowed:
            # To make room, this connection itself was chosen.
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
