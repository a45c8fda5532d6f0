"""How many bytes a process holds for its clients at the same time, in all and per tenant."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.conf import settings

from sessions_app.core.base.errors import AnswersFull

_RESERVED = 8
_SMALL = 16


class ByteBudget:
    """At most ``most()`` bytes in all, and half of them for one owner. Safe in threads.

    The last eighth is for owners that hold no more than a sixteenth: without it, two owners could hold everything together.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held: dict[Hashable, int] = {}
        self._lock = threading.Lock()
        self.held = 0

    def take(self, owner: Hashable, size: int, *, alone: bool = False) -> bool:
        """Count ``size`` more bytes; False if they do not fit, and then nothing is counted.

        ``alone``: they fit in any case if the owner holds no more than a sixteenth.
        """
        with self._lock:
            return self._take(owner, size, alone=alone)

    def give_back(self, owner: Hashable, size: int) -> None:
        with self._lock:
            self._give_back(owner, size)

    def exchange(self, owner: Hashable, before: int, size: int) -> bool:
        """Give ``before`` bytes back and take ``size``, alone if need be; False if those do not fit."""
        with self._lock:
            self._give_back(owner, before)
            return self._take(owner, size, alone=True)

    def _take(self, owner: Hashable, size: int, *, alone: bool) -> bool:
        held, most = self._held.get(owner, 0), self._most()
        if not size:
            return True
        if not (alone and held <= most // _SMALL) and not self._fits(held, size, most):
            return False
        self.held += size
        self._held[owner] = held + size
        return True

    def _fits(self, held: int, size: int, most: int) -> bool:
        if self.held + size > most or held + size > most // 2:
            return False
        return self.held + size <= most - most // _RESERVED or held + size <= most // _SMALL

    def _give_back(self, owner: Hashable, size: int) -> None:
        if not size:
            return
        self.held -= size
        left = self._held[owner] - size
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]


ANSWERS = ByteBudget(lambda: int(settings.AGENTHOST_ANSWERS_BYTES))
"""Large answers: from before they are built until their clients have them."""


class AnswerBytes:
    """What one answer holds of ``ANSWERS``. Its thread may still be at work when the answer has ended: it holds nothing then."""

    def __init__(self, owner: Hashable) -> None:
        self._owner = owner
        self._size = 0
        self._ended = False
        self._lock = threading.Lock()

    def add(self, size: int) -> bool:
        """Hold this much more; False, and then nothing is held, if there is no room."""
        with self._lock:
            return self._hold(self._size + size)

    def hold(self, size: int) -> bool:
        """Hold this much from now on, in place of what was held; False, and then nothing is held, if there is no room."""
        with self._lock:
            return self._hold(size)

    def _hold(self, size: int) -> bool:
        if size == self._size and not self._ended:
            return True
        before, self._size = self._size, 0
        if not ANSWERS.exchange(self._owner, before, 0 if self._ended else size):
            return False
        self._size = 0 if self._ended else size
        return not self._ended

    def end(self) -> None:
        with self._lock:
            self._ended = True
            ANSWERS.give_back(self._owner, self._size)
            self._size = 0


LEAST_RESERVED = 1024 * 1024
SMALL_PIECE = 64 * 1024
_current: ContextVar[AnswerBytes | None] = ContextVar("answer_bytes", default=None)


@contextmanager
def answering(owner: Hashable) -> Iterator[AnswerBytes]:
    """What is reserved within the block, in its context or a copy of it, is held until the block ends."""
    answer = AnswerBytes(owner)
    token = _current.set(answer)
    try:
        yield answer
    finally:
        _current.reset(token)
        answer.end()


def reserve(size: int) -> None:
    """Hold this many bytes for the answer that is being made, before it is built. ``AnswersFull`` if there is no room.

    Small answers are not counted. Without ``answering`` around it nothing is.
    """
    answer = _current.get()
    if answer is not None and size > LEAST_RESERVED and not answer.add(size):
        raise AnswersFull


def hold(size: int) -> bool:
    """Hold this many bytes for the answer that is being sent, in place of those before; False if there is no room."""
    answer = _current.get()
    return answer is None or answer.hold(size if size > SMALL_PIECE else 0)
