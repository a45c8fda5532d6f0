"""Celery's entry points. The queue is the table: a task only wakes a worker up."""

from __future__ import annotations

from celery import shared_task

from sessions_app.core.turns.wake_ups import WakeUps


@shared_task(name="agenthost.wake_worker", ignore_result=True)
def wake_worker() -> None:
    """Have this process's worker look at the queue."""
    from sessions_app.core.worker import worker

    worker.wake()


@shared_task(name="agenthost.housekeeping", ignore_result=True)
def do_housekeeping() -> None:
    """Prune, and remove what was deleted. No promise depends on it."""
    from sessions_app.core.worker import housekeeping

    housekeeping.start()


def _publish() -> None:
    wake_worker.apply_async(retry=False, ignore_result=True)


_wake_ups = WakeUps(_publish)


def wake() -> None:
    """Wake a worker soon. Costs the caller nothing, whatever state the broker is in."""
    _wake_ups.request()
