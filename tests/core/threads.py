"""Threads of the core's tests: each gives its database connection back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connection

TIMEOUT = 90.0


def in_thread(fn: Callable[[], object]) -> threading.Thread:
    """Call ``fn`` in a thread, which is started."""

    def call_and_close() -> None:
        try:
            fn()
        finally:
            connection.close()

    thread = threading.Thread(target=call_and_close)
    thread.start()
    return thread


def at_once(*calls: Callable[[], object]) -> list[Any]:
    """Make these calls at the same moment, each in its own thread. Returns results or exceptions, in the calls' order."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        barrier.wait(TIMEOUT)
        try:
            outcomes[index] = calls[index]()
        except Exception as error:
            outcomes[index] = error

    threads = [in_thread(partial(run, index)) for index in range(len(calls))]
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "a call did not return"
    return outcomes


def errors_of(outcomes: list[Any]) -> list[str]:
    """The outcomes' exceptions by class name, sorted; "done" for each call that returned."""
    return sorted(type(each).__name__ if isinstance(each, Exception) else "done" for each in outcomes)
