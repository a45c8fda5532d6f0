"""Cancels tasks without waiting for their end."""

from __future__ import annotations

import asyncio
from typing import Any

_cancelled: set[asyncio.Task[Any]] = set()
"""Strong references until the tasks end: the loop has weak ones only."""


def cancel_without_waiting(task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for it, because it may ignore the cancellation."""
    if task.done():
        _ended(task)
        return
    task.cancel()
    _cancelled.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[Any]) -> None:
    _cancelled.discard(task)
    if not task.cancelled():
        # Retrieved, so that the loop does not report it.
        task.exception()
