"""The Celery tasks. The queue is the table of turns; a task only wakes a worker, through the broker's queue of the turn's queue.

A process that executes tasks sets what they do (``serve``). Web processes only publish them. A process with an event loop
sets a cheaper publisher of wake-ups (``publish_with``); without one they are published from a thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from celery import shared_task

from sessions_app.core.turns.wake_ups import WakeUps
from sessions_app.models import DEFAULT_QUEUE

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


DEFAULT_IN_BROKER = "agenthost"
"""The broker's name of the default queue, which releases without other queues use; other queues have their own name there."""


def name_in_broker(queue: str) -> str:
    return DEFAULT_IN_BROKER if queue == DEFAULT_QUEUE else queue


def name_of(in_broker: str) -> str:
    """The queue with this name in the broker."""
    return DEFAULT_QUEUE if in_broker == DEFAULT_IN_BROKER else in_broker


def _publish(queue: str) -> None:
    wake_worker.apply_async(retry=False, ignore_result=True, queue=name_in_broker(queue))


_in_thread = WakeUps(_publish)
_request: Callable[[str], bool] | None = None


def publish_with(request: Callable[[str], bool] | None) -> None:
    """Set how this process publishes wake-ups. None: from a thread, by Celery's publisher.

    ``request`` is called with the queue, from any thread, neither waits nor raises, and returns False if it can publish no more.
    """
    global _request
    _request = request


def wake(queue: str = DEFAULT_QUEUE) -> None:
    """Wake a worker of this queue soon. Returns at once, even if the broker is unavailable. Callable in any thread and loop.

    A wake-up is published after this call, never before: so a worker that gets it sees every turn of the queue whose transaction
    was committed before the call. Calls for one queue at the same time share one.
    """
    request = _request
    if request is None or not request(queue):
        _in_thread.request(queue)


def wake_for(queues: Sequence[str] | None) -> None:
    """Wake workers of all these queues. None: the caller's worker serves all, so its own wake-up is enough."""
    for queue in (DEFAULT_QUEUE,) if queues is None else queues:
        wake(queue)
