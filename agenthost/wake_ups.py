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


def publish_from(loop: asyncio.AbstractEventLoop) -> RedisPublisher | None:
    """Publish from ``loop``, which may run in another thread. None if the broker is not a Redis."""
    broker = app.connection_for_write()
    if not can_connect(broker):
        return None
    message = TaskMessage(app.tasks[WAKE])
    key = (broker.transport_options or {}).get("global_keyprefix", "") + message.queue
    publisher = RedisPublisher(loop, broker, key, message.new)
    publisher.start()
    tasks.publish_with(publisher.request)
    return publisher


def publish_from_worker(loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
    """The same for a process with a worker that ``wake`` wakes."""
    if app.conf.broker_url != memory_broker.URL:
        publish_from(loop)
        return

    def request() -> bool:
        wake()
        return True

    tasks.publish_with(request)


def stop() -> None:
    """From now on wake-ups are published from a thread."""
    tasks.publish_with(None)
