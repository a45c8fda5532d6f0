"""Supervises tasks and threads that must run as long as their process or their owner.

A process whose task ended silently looks alive and does nothing: its runs hang while their leases are renewed. So if a
supervised task ends without being cancelled, the process logs the reason and exits with ``EXIT_CODE``; its supervisor
starts it again, and other workers take over its runs. An owner that can recover by itself passes ``instead``.
"""

from __future__ import annotations

import asyncio
import inspect
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
"""Called with the exception (None: the work returned) instead of ending the process."""


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
        # The task itself was not cancelled: something that it awaited was.
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


async def end_tasks(patience: float) -> None:
    """Cancel all other tasks of this loop, and wait for them at most ``patience`` seconds.

    A task is cancelled once, and only after it has begun: asyncio never runs a task that is cancelled earlier, and a
    library that wraps a coroutine in a task, as anyio does, then never awaits the coroutine.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    cancelled: set[asyncio.Task[Any]] = set()
    while (left := asyncio.all_tasks() - {asyncio.current_task()}) and loop.time() < until:
        begun = {each for each in left - cancelled if not _is_new(each)}
        for each in begun:
            each.cancel()
        cancelled |= begun
        if left <= cancelled:
            await asyncio.wait(left, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)


def _is_new(task: asyncio.Task[Any]) -> bool:
    work = task.get_coro()
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED


def _give_up(what: str, name: str, error: BaseException | None, instead: Instead | None) -> None:
    if instead is None:
        end_process(f"{what} {name!r}", error)
    else:
        log.error("%s_ended %s=%r: %s", what, what, name, _described(error))
        instead(error)


def end_process(what: str, error: BaseException | None) -> None:
    """Log the reason and exit at once, without a shutdown: the state of the process is not reliable any more."""
    log.critical("process_ends exit_code=%d: %s ended unexpectedly: %s", EXIT_CODE, what, _described(error))
    leave(EXIT_CODE)


def leave(code: int) -> None:
    """Flush the log and end the process at once; threads that hang do not delay it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _described(error: BaseException | None) -> str:
    return "it returned" if error is None else redaction.described(error)
