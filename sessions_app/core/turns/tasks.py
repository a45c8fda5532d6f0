"""Celery's tasks. The queue is the table of turns: a task only wakes a worker.

What a task does is set by the process that serves it (``serve``): a web process publishes tasks and runs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from celery import shared_task

from sessions_app.core.turns.wake_ups import WakeUps

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What a process does for the tasks it receives."""

    wake: Callable[[], object]
    keep_house: Callable[[], object]


_service: Service | None = None


def serve(service: Service | None) -> None:
    """Set what this process does for the tasks it receives. None: it runs no turns (any more)."""
    global _service
    _service = service


@shared_task(name="agenthost.wake_worker", ignore_result=True)
def wake_worker() -> None:
    """Have this process's worker look at the queue."""
    if (service := _served("agenthost.wake_worker")) is not None:
        service.wake()


@shared_task(name="agenthost.housekeeping", ignore_result=True)
def do_housekeeping() -> None:
    """Prune, and remove what was deleted. No promise depends on it."""
    if (service := _served("agenthost.housekeeping")) is not None:
        service.keep_house()


def _served(task: str) -> Service | None:
    if _service is None:
        log.warning("task_without_worker task=%s", task)
    return _service


def _publish() -> None:
    wake_worker.apply_async(retry=False, ignore_result=True)


_wake_ups = WakeUps(_publish)


def wake() -> None:
    """Wake a worker soon. Costs the caller nothing, whatever state the broker is in."""
    _wake_ups.request()
