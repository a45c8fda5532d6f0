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

from agents_app import redaction

log = logging.getLogger(__name__)

EXIT_CODE = 70
"""An internal software error (EX_SOFTWARE)."""

Instead = Callable[[BaseException | None], object]
"""Called with the exception, None if there was none, in place of ending the process."""


def task(
    work: Coroutine[Any, Any, None],
    name: str,
    *,
    may_return: Callable[[], bool] = lambda: False,
    instead: Instead | None = None,
) -> asyncio.Task[None]:
    """Start a task that ends only when it is cancelled, or returns when it ``may_return``.

    If it ends otherwise, the process exits, or ``instead`` is called with the exception (None: it returned).
    """
    started = asyncio.get_running_loop().create_task(work, name=name)
    started.add_done_callback(lambda done: _ended(done, may_return, instead))
    return started


def _ended(done: asyncio.Task[None], may_return: Callable[[], bool], instead: Instead | None) -> None:
    if done.cancelled():
        if done.cancelling():
            return
        # Nobody cancelled the task: something it waited for was cancelled.
        error: BaseException | None = asyncio.CancelledError()
    else:
        error = done.exception()
        if error is None and may_return():
            return
    _give_up("task", done.get_name(), error, instead)


def thread(
    work: Callable[[], object], name: str, *, may_return: Callable[[], bool], instead: Instead | None = None
) -> threading.Thread:
    """Make a daemon thread that returns only when it ``may_return``.

    If it ends otherwise, the process exits, or ``instead`` is called, in the thread, as for a task.
    """

    def supervised() -> None:
        try:
            work()
        except BaseException as error:
            _give_up("thread", name, error, instead)
        else:
            if not may_return():
                _give_up("thread", name, None, instead)

    return threading.Thread(target=supervised, name=name, daemon=True)


def _give_up(what: str, name: str, error: BaseException | None, instead: Instead | None) -> None:
    if instead is None:
        end_process(f"{what} {name!r}", error)
    else:
        log.error("%s_ended %s=%r: %s", what, what, name, _described(error))
        instead(error)


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
    return "it returned" if error is None else redaction.described(error)
