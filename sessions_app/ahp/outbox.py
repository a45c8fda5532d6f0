"""What waits to be sent to one connection: in order, bounded, and held back while a snapshot is read.

Pure: no clock, no socket. Answers and notifications go out as they come. Actions carry numbers and keep the tenant's
order; around a snapshot they are held, so that the snapshot stands at its own number among them (R65).
"""

from __future__ import annotations

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


class Outbox:
    """``overflowed``: an action did not fit. Nothing is taken from then on: the connection has to be closed, because
    what comes later may not be sent without it (R6)."""

    def __init__(self, most_bytes: int, on_news: Callable[[], None]) -> None:
        self._most = most_bytes
        self._on_news = on_news
        self._ready: deque[str] = deque()
        self._held: list[_Held] = []
        self._holding = False
        self._bytes = 0
        self.overflowed = False

    @property
    def is_crowded(self) -> bool:
        """More than half full: whoever asks for answers may wait before asking for more."""
        return self._bytes > self._most // 2

    def put(self, text: str) -> None:
        """An answer. Who asks waits while it is crowded here, so there are never many."""
        if not self.overflowed:
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

    def take(self) -> list[str]:
        """Everything that may go out now."""
        taken = list(self._ready)
        self._ready.clear()
        self._bytes -= sum(len(text) + _FRAME_BYTES for text in taken)
        return taken

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
        held, self._held = self._held, []
        floors = floors or {}
        upto = max(floors.values(), default=-1)
        for each in held:
            self._bytes -= len(each.text) + _FRAME_BYTES
        if self.overflowed:
            return
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
            self.overflowed = True
            self._ready.clear()
            self._held.clear()
            self._bytes = 0
            self._on_news()
        return not self.overflowed

    def _push(self, text: str) -> None:
        self._ready.append(text)
        self._bytes += len(text) + _FRAME_BYTES
