"""The Celery tasks. The queue is the table of turns; a task only wakes a worker.

A process that executes tasks sets what they do (``serve``). Web processes only publish them. A process with an event loop
sets a cheaper publisher of wake-ups (``publish_with``); without one they are published from a thread.
"""

from __future__ import annotations

import logging
import threading
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


def look_at_queue() -> None:
    """What the task does, without a task: also called when the broker is reached again, which may have lost messages."""
    if (service := _service) is not None:
        service.wake()


@shared_task(name="agenthost.housekeeping", ignore_result=True)
def do_housekeeping() -> None:
    """Run one round of housekeeping. No guarantee depends on it."""
    if (service := _served("agenthost.housekeeping")) is not None:
        service.keep_house()


def ask_for_housekeeping() -> None:
    """Start a round of housekeeping soon, instead of at the next minute. Returns at once."""

    def publish() -> None:
        try:
            do_housekeeping.apply_async(retry=False, ignore_result=True, expires=55)
        except Exception as error:  # whatever the broker's client raises
            log.warning("housekeeping_not_published error=%s", type(error).__name__)

    threading.Thread(target=publish, name="ask-for-housekeeping", daemon=True).start()


def _served(task: str) -> Service | None:
    if _service is None:
        log.warning("task_without_worker task=%s", task)
    return _service


def _publish() -> None:
    wake_worker.apply_async(retry=False, ignore_result=True)


_in_thread = WakeUps(_publish)
_request: Callable[[], bool] | None = None


def publish_with(request: Callable[[], bool] | None) -> None:
    """Set how this process publishes wake-ups. None: from a thread, by Celery's publisher.

    ``request`` is called from any thread, neither waits nor raises, and returns False if it can publish no more.
    """
    global _request
    _request = request


def wake() -> None:
    """Wake a worker soon. Returns at once, even if the broker is unavailable. Callable from any thread and any loop.

    A wake-up is published after this call, never before: so a worker that gets it sees every turn whose transaction was
    committed before the call. Calls at the same time share one.
    """
    request = _request
    if request is None or not request():
        _in_thread.request()
