"""Everything that runs turns in a process: the core's worker, the Celery consumer that wakes it, and beat.

Used by worker processes and by the embedded server. Celery runs in a thread, without its own signal handlers,
because the process itself decides the order in which its parts stop.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from typing import Any

from celery.platforms import EX_OK
from celery.worker import WorkController
from celery.worker import state as consumer_state
from celery.worker.request import Request

from agenthost import memory, memory_broker
from agenthost.beat import Beat
from agenthost.celery import app, load_publisher
from sessions_app.core.base import supervision
from sessions_app.core.turns import tasks
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.001
"""How long a busy thread may keep the GIL. Python's default of 5 ms would delay the event loop at each wake-up."""
CELERY_STOP_SECONDS = 10.0


class UnacknowledgedRequest(Request):
    """A task of a queue without acknowledgements: acknowledging it sends nothing to the broker."""

    def acknowledge(self) -> None:
        self.acknowledged = True


_CELERY_PARTS = (
    "celery.concurrency.solo",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.control",
    "celery.worker.loops",
    "celery.worker.strategy",
)


def load() -> None:
    """Import what Celery imports when a consumer starts, so that forked processes share it. Opens no connection."""
    load_publisher()
    app.loader.import_default_modules()
    for name in _CELERY_PARTS:
        importlib.import_module(name)


class Consumer:
    """A Celery worker in a thread. Its tasks run in the same thread."""

    def __init__(self) -> None:
        self._controller: Any = None
        self._closing = threading.Event()
        self._thread = supervision.thread(self._consume, "celery", may_return=self._closing.is_set)

    def start(self) -> None:
        # Module globals of Celery: a consumer that stopped earlier in this process has set them.
        consumer_state.should_stop = None
        consumer_state.should_terminate = None
        memory_broker.stop_waiting(enabled=False)
        app.set_current()
        self._controller = WorkController(
            app=app,
            hostname=f"agenthost-{os.getpid()}@{socket.gethostname()}",
            pool_cls="solo",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            task_events=False,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop taking tasks."""
        self._closing.set()
        consumer_state.should_stop = EX_OK  # type: ignore[assignment]  # the stub allows only the initial value
        memory_broker.stop_waiting(enabled=True)

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; True if it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _consume(self) -> None:
        app.set_current()
        self._controller.start()


class WorkerServices:
    """The worker, its Celery consumer and beat. Started and stopped once, from the main thread."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._consumer = Consumer()
        self._beat = Beat()

    def start(self) -> None:
        # The core's worker first: it also finds turns by polling the database, without a broker.
        self._worker.start()
        tasks.serve(tasks.Service(wake=self._worker.wake, keep_house=housekeeping.start))
        self._consumer.start()
        self._beat.start()
        memory.freeze()
        sys.setswitchinterval(SWITCH_SECONDS)

    def stop(self, grace: float, drain: float | None = None) -> bool:
        """Stop claiming turns, let runs finish for ``grace`` seconds, then hand over the rest; True if Celery has stopped too.

        Runs that cannot be handed over while an answer streams have ``drain`` more seconds.
        """
        self._beat.stop()
        self._consumer.close()
        self._worker.stop(grace, drain)
        stopped = self._consumer.join(CELERY_STOP_SECONDS)
        if not stopped:
            log.warning("celery_not_stopped seconds=%.0f; its threads run until the process ends", CELERY_STOP_SECONDS)
        tasks.serve(None)
        return stopped
