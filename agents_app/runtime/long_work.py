"""Work on long conversations, done outside the event loop that all runs of a process share.

Compacting, converting or encoding 10 MB of messages takes some 100 ms of pure Python; in the loop, every other run would wait
for it. Threads share the interpreter's lock with the loop, so few of them work at once: ``THREADS``, one for each owner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from agents_app.fair.threads import FairPool
from agents_app.runtime.messages import Message, ToolSchema

T = TypeVar("T")

THREADS = 2
LONG = 512 * 1024
"""Bytes, about: work on less takes a few milliseconds and stays in the loop, because a change of threads costs time too."""
_PER_MESSAGE, _PER_VALUE = 1024, 16
"""A message takes as long as this many bytes of text, whatever is in it; so does a value in one."""

_lock = threading.Lock()
_pool: FairPool | None = None


async def call(owner: Hashable, work: Callable[[], T], *values: object) -> T:
    """``work()``; in one of the owner's share of threads if ``values``, which it works on, are long.

    A caller that is cancelled goes on at once. The work is then finished for nobody, so it must not change anything.
    """
    if not is_long(*values):
        return work()
    return await _threads().run(owner, work)


def is_long(*values: object) -> bool:
    """Whether these (texts, messages, JSON values, rows) are long. Looks at no more of them than it needs to."""
    left = LONG
    rest = list(values)
    while rest:
        value = rest.pop()
        left -= _PER_VALUE
        # In the order of how often they come: each model call pays for this.
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, dict):
            rest += value.values()
        elif isinstance(value, Message):
            left -= _PER_MESSAGE + len(value.provider_data or "")
            rest.append(value.content)
        elif isinstance(value, list | tuple):
            rest += value
        elif isinstance(value, ToolSchema):
            rest += (value.description, value.parameters)
        elif isinstance(value, Mapping):
            rest += value.values()
        if left < 0:
            return True
    return False


def _threads() -> FairPool:
    global _pool
    with _lock:
        if _pool is None:
            _pool = FairPool(THREADS, name="long")
        return _pool
