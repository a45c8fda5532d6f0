"""Celery's entry points. The queue is the table: a task only wakes somebody up."""

from __future__ import annotations

import logging

from celery import shared_task

log = logging.getLogger(__name__)


@shared_task(name="agenthost.wake_worker", ignore_result=True)
def wake_worker() -> None:
    """Have this process's worker look at the queue."""
    from sessions_app.core import worker

    worker.wake()


@shared_task(name="agenthost.housekeeping", ignore_result=True)
def do_housekeeping() -> None:
    """Prune, and remove what was deleted. No promise depends on it."""
    from sessions_app.core import housekeeping

    housekeeping.start()


def wake() -> None:
    """Wake a worker. A wake-up that fails costs at most the sweep's two seconds, never the caller's answer."""
    try:
        wake_worker.apply_async(retry=False, ignore_result=True)
    except Exception:
        log.warning("waking a worker failed; the sweep will find the turn", exc_info=True)
