"""Thread pool for work on long conversations, which would block the event loop that all runs of a process share.

Compacting, converting or encoding 10 MB of messages takes some 100 ms of pure Python. Threads share the interpreter's lock
with the loop, so only ``THREADS`` of them work at the same time, one for each owner.
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
"""Approximate bytes. Work on less takes a few milliseconds and stays in the loop, because a thread switch costs time too."""
_PER_MESSAGE, _PER_VALUE = 1024, 16
"""Overhead of each message and of each value in one, as bytes of text that take the same time."""

_lock = threading.Lock()
_pool: FairPool | None = None


async def call(owner: Hashable, work: Callable[[], T], *values: object) -> T:
    """Call ``work``; in a thread of the owner's share if its inputs ``values`` are long.

    A cancelled caller continues at once while the thread finishes, so ``work`` must not change anything.
    """
    if not is_long(*values):
        return work()
    return await _threads().run(owner, work)


def is_long(*values: object) -> bool:
    """Whether these texts, messages, JSON values or rows are long. Stops counting at the limit."""
    left = LONG
    rest = list(values)
    while rest:
        value = rest.pop()
        left -= _PER_VALUE
        # The most frequent types first: each model call runs this.
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
