"""Everything that runs turns in a process: the core's worker, the Celery consumer that wakes it, and beat.

Used by worker processes and by the embedded server. Celery runs in a thread, without its own signal handlers,
because the process itself decides the order in which its parts stop.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from celery.platforms import EX_OK
from celery.worker import WorkController
from celery.worker import state as consumer_state

from agenthost import memory, memory_broker, wake_ups
from agenthost.beat import Beat
from agenthost.celery import app, declare, load_publisher
from agenthost.redis_connection import can_connect
from agenthost.redis_receiver import RedisReceiver
from sessions_app.core.base import supervision
from sessions_app.core.turns import tasks
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import DEFAULT_QUEUE

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.001
"""How long a busy thread may keep the GIL. Python's default of 5 ms would delay the event loop at each wake-up."""
CELERY_STOP_SECONDS = 10.0
HEARTBEAT_SECONDS = 10.0


_CELERY_PARTS = (
    "agenthost.wake_consumer",
    "billiard.pool",
    "celery.app.control",
    "celery.concurrency.solo",
    "celery.events.receiver",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.control",
    "celery.worker.loops",
    "celery.worker.strategy",
)


def load() -> None:
    """Import what Celery imports when a consumer starts, so that forked processes share it. Opens no connection."""
    load_publisher()
    # The process has made them, and in forked processes they would write to all pages with models.
    os.environ["CELERY_SKIP_CHECKS"] = "1"
    app.loader.import_default_modules()
    for name in _CELERY_PARTS:
        importlib.import_module(name)


class Consumer:
    """A Celery worker in a thread. Its tasks run in the same thread.

    With a ``loop``, which runs in another thread, and Redis as broker, its messages are taken in that loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> None:
        self._loop = loop
        self._queues = [tasks.name_in_broker(queue) for queue in queues]
        self._controller: Any = None
        self._receiver: RedisReceiver | None = None
        self._closing = threading.Event()
        self._thread = supervision.thread(self._consume, "celery", may_return=self._closing.is_set)

    def prepare(self) -> None:
        """Load and make what takes time, before the worker is ready."""
        # Module globals of Celery: a consumer that stopped earlier in this process has set them.
        consumer_state.should_stop = None
        consumer_state.should_terminate = None
        memory_broker.stop_waiting(enabled=False)
        app.set_current()
        declare(app, self._queues)
        self._controller = WorkController(
            app=app,
            queues=self._queues,
            hostname=f"agenthost-{os.getpid()}@{socket.gethostname()}",
            pool_cls="solo",
            without_gossip=True,
            without_mingle=True,
            # Heartbeats show the worker to `celery events` and keep a dispatcher for `celery control enable_events`.
            without_heartbeat=not app.conf.worker_enable_remote_control,
            heartbeat_interval=HEARTBEAT_SECONDS,
            task_events=False,
        )
        self._controller.consumer.served = self._queues
        broker = app.connection_for_read()
        if self._loop is not None and can_connect(broker):
            consumer = self._controller.consumer
            consumer.receiver = self._receiver = RedisReceiver(self._loop, broker, consumer.received, tasks.look_at_queue)

    def start(self) -> None:
        if self._controller is None:
            self.prepare()
        self._thread.start()

    def close(self) -> None:
        """Stop taking tasks."""
        self._closing.set()
        if self._receiver is not None:
            self._receiver.stop()
        consumer_state.should_stop = EX_OK  # type: ignore[assignment]  # the stub allows only the initial value
        memory_broker.stop_waiting(enabled=True)

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; True if it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _consume(self) -> None:
        app.set_current()
        self._controller.start()
        if self._controller.exitcode == EX_OK and not self._closing.is_set():
            log.info("celery_shutdown: stopping, as `celery control shutdown` asked")
            self._closing.set()
            os.kill(os.getpid(), signal.SIGTERM)


class WorkerServices:
    """The worker, its Celery consumer and beat. Started and stopped once, from the main thread.

    ``queues``: those that it serves. None: all, as the only worker of a server does.
    """

    def __init__(self, queues: Sequence[str] | None = None) -> None:
        self._queues = queues
        self._worker = Worker(queues)
        # A worker of all queues is in the process that accepts their turns, and needs no message for them.
        self._consumer = Consumer(self._worker.loop, (DEFAULT_QUEUE,) if queues is None else queues)
        self._beat = Beat()

    def start(self) -> None:
        self._consumer.prepare()
        # The core's worker first: it also finds turns by polling the database, without a broker.
        self._worker.start()
        tasks.serve(tasks.Service(wake=self._worker.wake, keep_house=housekeeping.start))
        # For turns that were queued before, whose wake-ups may be lost.
        self._worker.wake()
        wake_ups.publish_from_worker(self._worker.loop, self._worker.wake, serves_all=self._queues is None)
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
        # Instead of a wake-up that this worker took and has not followed.
        tasks.wake_for(self._queues)
        self._worker.stop(grace, drain)
        wake_ups.stop()
        stopped = self._consumer.join(CELERY_STOP_SECONDS)
        if not stopped:
            log.warning("celery_not_stopped seconds=%.0f; its threads run until the process ends", CELERY_STOP_SECONDS)
        tasks.serve(None)
        return stopped
