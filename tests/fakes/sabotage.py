"""A tool that breaks the very process it runs in, in ways that no code of the product expects."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Never

WORDS = "words that must not be logged"


def sabotage(part: str) -> str:
    """Breaks a part of this process.

    Args:
        part: which one
    """
    _BREAK[part]()
    if part != "journal-writer":
        # The run is to be under way when its process ends.
        threading.Event().wait(100)
    return "broken"


def _fail(*_: Any, **__: Any) -> Never:
    raise RuntimeError(WORDS)


def _break_writer() -> None:
    from sessions_app.core.log.journal.postgres_store import PostgresStore
    from sessions_app.core.log.journal.sqlite_store import SqliteStore

    for store in (PostgresStore, SqliteStore):
        setattr(store, "attempt", _fail)  # noqa: B010 - it is no method


def _break_sweep() -> None:
    from sessions_app.core.base.periodic_tasks import PeriodicTask

    setattr(PeriodicTask, "attempt", _fail)  # noqa: B010 - it is no method


def _break_leases() -> None:
    from sessions_app.core.worker.leases import Leases

    class Gone:
        call_soon_threadsafe = staticmethod(_fail)

    original = Leases._renew

    def renew(leases: Leases) -> None:
        original(leases)
        leases._stopped = Gone()  # type: ignore[assignment]  # anything but an event

    setattr(Leases, "_renew", renew)  # noqa: B010 - it is another method


def _stop_loop() -> None:
    from sessions_app.core.turns import tasks

    assert tasks._service is not None
    worker: Any = tasks._service.wake.__self__  # type: ignore[attr-defined]  # it is a method of the worker's
    worker._loop.call_soon_threadsafe(worker._loop.stop)


_BREAK: dict[str, Callable[[], None]] = {
    "journal-writer": _break_writer,
    "sweep": _break_sweep,
    "leases": _break_leases,
    "runs": _stop_loop,
}
