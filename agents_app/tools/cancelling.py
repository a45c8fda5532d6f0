"""Tasks that nobody waits for any more: told to stop, kept until they have heard."""

from __future__ import annotations

import asyncio
from typing import Any

_left_behind: set[asyncio.Task[Any]] = set()
"""The loop itself holds tasks weakly."""


def cancel_without_waiting(task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for it: it might not listen."""
    if task.done():
        _heard(task)
        return
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_heard)


def _heard(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        # Retrieved, so that the loop does not report it as never retrieved.
        task.exception()
