"""The event loop that all test runs of a process share.

A model or tool may keep an HTTP client, which belongs to the loop that it was first used in. With a loop for each turn,
the second turn of a test would find its connections closed.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agents_app import supervision

T = TypeVar("T")

_PATIENCE = 10.0
"""Seconds that the tasks which a run has left may take to end."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end; in a thread of its own if another loop is running in this one."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    if running is _loop:
        work.close()
        raise RuntimeError("an agent's test run cannot start another one from inside")
    came: list[T] = []
    failed: list[BaseException] = []

    def run_there() -> None:
        try:
            came.append(_run(work))
        # Any exception is raised again in the test's thread.
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run_there, name="agent-test-run", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return came[0]


def _run(work: Coroutine[Any, Any, T]) -> T:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            atexit.register(_close)
        try:
            return _loop.run_until_complete(work)
        finally:
            # A turn may have left tasks running.
            _loop.run_until_complete(supervision.end_tasks(_PATIENCE))


def _close() -> None:
    if _loop is not None:
        _loop.run_until_complete(_loop.shutdown_asyncgens())
        _loop.close()
