"""The Celery tasks. The queue is the table of turns; a task only wakes a worker.

A process that executes tasks sets what they do (``serve``). Web processes only publish them.
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
    """What a process does when it receives a task."""

    wake: Callable[[], object]
    keep_house: Callable[[], object]


_service: Service | None = None


def serve(service: Service | None) -> None:
    """Set what this process does when it receives a task. None: it runs no turns (any more)."""
    global _service
    _service = service


@shared_task(name="agenthost.wake_worker", ignore_result=True)
def wake_worker() -> None:
    """Make this process's worker claim queued turns."""
    if (service := _served("agenthost.wake_worker")) is not None:
        service.wake()


@shared_task(name="agenthost.housekeeping", ignore_result=True)
def do_housekeeping() -> None:
    """Run one round of housekeeping. No guarantee depends on it."""
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
    """Wake a worker soon. Returns at once, even if the broker is unavailable."""
    _wake_ups.request()
