"""Calls synchronous functions on the event loop; while one waits for the database, the loop continues with other work.

A call runs in a greenlet of the loop's thread. Its database connection (loop_connections.py) does not block when it has to
wait: it switches to the loop and comes back with the answer. So the hot requests need no thread, and the same core
functions work in a thread, where they block (docs/decisions/0050).

Within a call nothing else of the loop runs between two waits, as in a coroutine between two awaits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class Repeat(BaseException):
    """An optimistic call failed or needs more than one round trip: it is made again without assumptions.

    Not an Exception, so that no handler of errors answers it. Nothing of the call was stored. ``batch_failed``: its whole
    batch failed, perhaps because of this call.
    """

    def __init__(self, *, batch_failed: bool = False) -> None:
        super().__init__()
        self.batch_failed = batch_failed


class NeedsThread(BaseException):
    """A call cannot continue on the loop, for example because a row is locked. It is made again in a thread.

    Not an Exception, so that no handler of errors answers it. The call's transaction was rolled back.
    """

    def __init__(self, *, is_locked: bool = False) -> None:
        super().__init__()
        self.is_locked = is_locked


class LoopCall(greenlet, Generic[T]):
    """One call. ``local`` is its counterpart of a thread's local data.

    ``is_optimistic``: it may use what this process remembers of keys and sessions; the transaction checks that. Whatever
    fails then is repeated without assumptions, so no client gets an answer that they have made.
    """

    def __init__(
        self, fn: Callable[[], T], owner: Hashable, context: contextvars.Context, *, is_optimistic: bool = False
    ) -> None:
        super().__init__(fn)
        self.gr_context = context
        self.owner = owner
        self.is_optimistic = is_optimistic
        self.assumptions: list[Any] = []
        """Statements that fail if something that the call assumed is not true."""
        self.is_refused = False
        """Whether its answer is an error."""
        self.is_cancelled = False
        """Whether one of its waits was cancelled: what its connection has sent and received is unknown."""
        self.local: dict[str, Any] = {}

    @property
    def is_unchecked(self) -> bool:
        """Whether the call assumed something, and no transaction has checked it."""
        return self.is_optimistic and bool(self.assumptions)


def current() -> LoopCall[Any] | None:
    """The call that is running now; None in a thread, and in the loop's own code."""
    found = getcurrent()
    return found if isinstance(found, LoopCall) else None


def is_optimistic() -> bool:
    found = current()
    return found is not None and found.is_optimistic


def assume(check: object) -> None:
    """In an optimistic call: let its transaction run this statement, which fails if something assumed is not true."""
    found = current()
    assert found is not None
    found.assumptions.append(check)


def fail(error: Exception) -> None:
    """Call this before an error is answered: an optimistic call is repeated instead."""
    if (found := current()) is not None:
        if found.is_optimistic:
            raise Repeat from error
        found.is_refused = True


def run_alone() -> list[Any]:
    """Before a transaction that cannot be part of a batch: an optimistic call is none from now on.

    Returns what it has assumed so far, which the caller checks now.
    """
    found = current()
    if found is None or not found.is_optimistic:
        return []
    found.is_optimistic = False
    assumptions, found.assumptions = found.assumptions, []
    return assumptions


def settle() -> None:
    """The call's transaction may be stored from now on: it is not repeated any more."""
    found = current()
    assert found is not None
    found.is_optimistic = False


def wait_for(awaitable: Awaitable[T]) -> T:
    """Within a call: the result of the awaitable. The loop runs meanwhile."""
    found = getcurrent()
    assert isinstance(found, LoopCall), "not on the loop"
    assert found.parent is not None
    return cast(T, found.parent.switch(awaitable))


async def run(call: LoopCall[T]) -> T:
    """Run the call to its end. Cancel the task only if the call may end at any of its waits."""
    try:
        awaited = call.switch()
        while not call.dead:
            try:
                value = await awaited
            except BaseException as error:
                call.is_cancelled = call.is_cancelled or isinstance(error, asyncio.CancelledError)
                awaited = call.throw(error)
            else:
                awaited = call.switch(value)
    except (Exception, Repeat, NeedsThread) as error:
        if call.is_cancelled:
            # For example Django's, which cannot end the transaction of a connection that is waiting for an answer.
            raise asyncio.CancelledError from error
        raise
    return cast(T, awaited)
