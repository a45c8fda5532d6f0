"""Memory limits for data that a process buffers for its clients, in total and per tenant."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextvars import ContextVar

from django.conf import settings

from sessions_app.core.base.errors import AnswersFull

_RESERVED = 8
_SMALL = 16


class ByteBudget:
    """At most ``most()`` bytes in total, and half of them for one owner. Thread-safe.

    The last eighth is reserved for owners that use at most a sixteenth: without it, two owners could use everything.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held: dict[Hashable, int] = {}
        self._lock = threading.Lock()
        self.held = 0

    def take(self, owner: Hashable, size: int, *, alone: bool = False) -> bool:
        """Reserve ``size`` bytes; False, and nothing is reserved, if they do not fit.

        ``alone``: they always fit if the owner has reserved at most a sixteenth.
        """
        with self._lock:
            return self._take(owner, size, alone=alone)

    def give_back(self, owner: Hashable, size: int) -> None:
        with self._lock:
            self._give_back(owner, size)

    def exchange(self, owner: Hashable, before: int, size: int) -> bool:
        """Replace a reservation of ``before`` bytes by ``size`` bytes; False, and nothing is reserved, if those do not fit."""
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
"""Large responses: from before they are built until their clients have read them."""


class AnswerBytes:
    """One response's reservation in ``ANSWERS``. After ``end`` it reserves nothing, even if its thread still works."""

    __slots__ = ("_ended", "_lock", "_owner", "_size")

    def __init__(self, owner: Hashable) -> None:
        self._owner = owner
        self._size = 0
        self._ended = False
        self._lock = threading.Lock()

    def add(self, size: int) -> bool:
        """Reserve this many more bytes; False, and nothing is reserved any more, if there is no room."""
        with self._lock:
            return self._hold(self._size + size)

    def hold(self, size: int) -> bool:
        """Change the reservation to this many bytes; False, and nothing is reserved any more, if there is no room."""
        with self._lock:
            return self._hold(size)

    @property
    def holds_nothing(self) -> bool:
        """Whether the response goes on without a reservation."""
        return not self._size and not self._ended

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


class answering:  # noqa: N801 - used as a function: a class takes less memory than a generator
    """Reservations within the block, in its context or a copy of it, last until the block ends."""

    __slots__ = ("_answer", "_token")

    def __init__(self, owner: Hashable) -> None:
        self._answer = AnswerBytes(owner)

    def __enter__(self) -> AnswerBytes:
        self._token = _current.set(self._answer)
        return self._answer

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        self._answer.end()


def reserve(size: int) -> None:
    """Reserve memory for the current response before it is built. Raises ``AnswersFull`` if there is no room.

    Small responses are not counted, and nothing is counted outside ``answering``.
    """
    answer = _current.get()
    if answer is not None and size > LEAST_RESERVED and not answer.add(size):
        raise AnswersFull


def hold(size: int) -> bool:
    """Change the reservation of the response that is being sent; False if there is no room."""
    answer = _current.get()
    if answer is None or (size <= SMALL_PIECE and answer.holds_nothing):
        return True
    return answer.hold(size if size > SMALL_PIECE else 0)
