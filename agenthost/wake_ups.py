"""How wake-ups are published in a process with an event loop.

To Redis from its loop; in the embedded server, whose worker is in the same process, without a message. For other brokers, and in
processes without a loop, Celery publishes them from a thread (``sessions_app/core/turns/wake_ups.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agenthost import memory_broker
from agenthost.celery import WAKE, app
from agenthost.redis_connection import can_connect
from agenthost.redis_publisher import RedisPublisher
from agenthost.task_message import TaskMessage
from sessions_app.core.turns import tasks
from sessions_app.models import DEFAULT_QUEUE


def publish_from(loop: asyncio.AbstractEventLoop) -> RedisPublisher | None:
    """Publish from ``loop``, which may run in another thread. None if the broker is not a Redis."""
    broker = app.connection_for_write()
    if not can_connect(broker):
        return None
    prefix = (broker.transport_options or {}).get("global_keyprefix", "")
    messages: dict[str, TaskMessage] = {}

    def message_for(queue: str) -> tuple[str, bytes]:
        if (message := messages.get(queue)) is None:
            message = messages[queue] = TaskMessage(app.tasks[WAKE], tasks.name_in_broker(queue))
        return prefix + message.queue, message.new()

    # Made now, because the first turn would wait for it.
    message_for(DEFAULT_QUEUE)
    publisher = RedisPublisher(loop, broker, message_for)
    publisher.start()
    tasks.publish_with(publisher.request)
    return publisher


def publish_from_worker(loop: asyncio.AbstractEventLoop, wake: Callable[[], object], *, serves_all: bool = True) -> None:
    """The same for a process with a worker that ``wake`` wakes. ``serves_all``: the worker serves all queues."""
    publisher = None if app.conf.broker_url == memory_broker.URL else publish_from(loop)
    if not serves_all:
        return

    def request(queue: str) -> bool:
        wake()
        return publisher is None or publisher.request(queue)

    tasks.publish_with(request)


def stop() -> None:
    """From now on wake-ups are published from a thread."""
    tasks.publish_with(None)
