"""The part of a process that runs turns: the core's worker, Celery's consumer that wakes it, beat if wanted.

The same in a worker process and in the embedded server. Celery runs in a thread of ours without its own
signal handlers: who stops what, and in which order, is decided by the process alone.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
from typing import Any

from celery.beat import Scheduler, Service
from celery.platforms import EX_OK
from celery.worker import WorkController
from celery.worker import state as consumer_state
from celery.worker.request import Request

from agenthost import memory_broker
from agenthost.celery import app
from sessions_app.core.base import supervision
from sessions_app.core.turns import tasks
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.001
"""A thread that calculates gives way to the loop after this; the usual 5 ms would delay the loop each time it wakes up."""
CELERY_STOPS_WITHIN = 10.0


class Uncounted(Request):
    """A task of a queue that keeps no count of what it gave out: there is nobody to thank for it."""

    def acknowledge(self) -> None:
        self.acknowledged = True


class Consumer:
    """Celery's worker in a thread, in which its tasks run too."""

    def __init__(self) -> None:
        self._controller: Any = None
        self._closing = threading.Event()
        self._thread = supervision.thread(self._consume, "celery", may_return=self._closing.is_set)

    def start(self) -> None:
        # These are the module's own; a consumer that ran in this process before has left its wish behind.
        consumer_state.should_stop = None
        consumer_state.should_terminate = None
        memory_broker.hurry(hurrying=False)
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
        """Take no more tasks."""
        self._closing.set()
        consumer_state.should_stop = EX_OK  # type: ignore[assignment]  # its stub knows only how it begins
        memory_broker.hurry(hurrying=True)

    def join(self, timeout: float) -> bool:
        """Whether it has stopped."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _consume(self) -> None:
        app.set_current()
        self._controller.start()


class Beat:
    """Celery's beat in a thread. It keeps no file: what it starts once a minute may as well start at once."""

    def __init__(self) -> None:
        self._service = Service(app, scheduler_cls=Scheduler)
        self._stopping = threading.Event()
        self._thread = supervision.thread(self._tick, "beat", may_return=self._stopping.is_set)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._service.stop()
        self._thread.join(2 * app.conf.beat_max_loop_interval)

    def _tick(self) -> None:
        app.set_current()
        self._service.start()


class Workforce:
    """Everything that runs turns in this process; started and stopped once, from the main thread."""

    def __init__(self, *, beat: bool) -> None:
        self._worker = Worker()
        self._consumer = Consumer()
        self._beat = Beat() if beat else None

    def start(self) -> None:
        # The core's worker first: it sweeps for itself, whether or not there is a broker to hear.
        self._worker.start()
        tasks.serve(tasks.Service(wake=self._worker.wake, keep_house=housekeeping.start))
        self._consumer.start()
        if self._beat is not None:
            self._beat.start()
        settle_memory()
        sys.setswitchinterval(SWITCH_SECONDS)

    def stop(self, grace: float, drain: float | None = None) -> bool:
        """Claims no more, lets runs finish for ``grace`` seconds, hands over what is left. Whether all ended.

        What cannot be handed over in the middle of a word has ``drain`` seconds more.
        """
        if self._beat is not None:
            self._beat.stop()
        self._consumer.close()
        self._worker.stop(grace, drain)
        stopped = self._consumer.join(CELERY_STOPS_WITHIN)
        if not stopped:
            log.warning("celery has not stopped within %.0f s; its threads are left to the process's end", CELERY_STOPS_WITHIN)
        tasks.serve(None)
        return stopped


def settle_memory() -> None:
    """Takes what stands now out of the collector's sight: at hundreds of runs it looked through it all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
