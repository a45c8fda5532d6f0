"""Tasks and threads that must live as long as their process, or as long as their owner wants them.

A task that ends silently leaves a process that looks alive and does nothing: its runs hang while their leases are
renewed. So if one ends that nobody cancelled, the process writes why to its log and exits with ``EXIT_CODE``; its
supervisor starts it again, and other workers take over its runs. Where less than a process can be given up, the owner
passes ``instead``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from sessions_app.core import faults

log = logging.getLogger(__name__)

EXIT_CODE = 70
"""An internal software error (EX_SOFTWARE)."""


def task(
    work: Coroutine[Any, Any, None], name: str, *, instead: Callable[[BaseException | None], object] | None = None
) -> asyncio.Task[None]:
    """Start a task that ends only when it is cancelled.

    If it ends otherwise, the process exits, or ``instead`` is called with the exception (None: it returned).
    """
    started = asyncio.get_running_loop().create_task(work, name=name)
    started.add_done_callback(lambda done: _ended(done, instead))
    return started


def _ended(done: asyncio.Task[None], instead: Callable[[BaseException | None], object] | None) -> None:
    if done.cancelled():
        if done.cancelling():
            return
        # Nobody cancelled the task: something it waited for was cancelled.
        error: BaseException | None = asyncio.CancelledError()
    else:
        error = done.exception()
    if instead is None:
        end_process(f"task {done.get_name()!r}", error)
    else:
        log.error("task_ended task=%r: %s", done.get_name(), _described(error))
        instead(error)


def thread(work: Callable[[], object], name: str, *, may_return: Callable[[], bool]) -> threading.Thread:
    """Make a daemon thread that returns only when ``may_return``; otherwise its end is the process's."""

    def supervised() -> None:
        try:
            work()
        except BaseException as error:
            end_process(f"thread {name!r}", error)
        else:
            if not may_return():
                end_process(f"thread {name!r}", None)

    return threading.Thread(target=supervised, name=name, daemon=True)


def end_process(what: str, error: BaseException | None) -> None:
    """Write why, then exit at once. Nothing is wound down: what cannot be relied on must not go on."""
    log.critical("process_ends exit_code=%d: %s ended unexpectedly: %s", EXIT_CODE, what, _described(error))
    leave(EXIT_CODE)


def leave(code: int) -> None:
    """End the process now, its log written; threads that hang do not delay it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _described(error: BaseException | None) -> str:
    return "it returned" if error is None else faults.described(error)
