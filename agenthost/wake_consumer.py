"""Celery's consumer as workers use it: wake-ups take a short path, and a broker that is away is tried every second.

A wake-up without options needs nothing of what Celery does for a task: no request object, no tracing, no signals. It is counted
(``celery inspect stats``) and the worker looks at the queue. All other messages take Celery's own path. So do wake-ups that have
an option (``eta``, ``expires``), that are revoked or rate limited, and all while events are sent (``celery control
enable_events``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from celery import Celery, Task
from celery.worker import consumer as celery_consumer
from celery.worker import state
from celery.worker.request import Request
from celery.worker.strategy import default
from kombu.utils.json import loads

from sessions_app.core.turns import tasks

if TYPE_CHECKING:
    from agenthost.redis_receiver import RedisReceiver

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS, _RETRY_STEP_SECONDS, _LAST_RETRY_SECONDS = 0.1, 0.3, 1.0


class UnacknowledgedRequest(Request):
    """A task of a queue without acknowledgements: acknowledging it sends nothing to the broker."""

    def acknowledge(self) -> None:
        self.acknowledged = True


class Consumer(celery_consumer.Consumer):
    # Missing in Celery's types.
    hub: Any
    connection: Any
    task_consumer: Any
    event_dispatcher: Any
    task_buckets: Any

    served: Collection[str] = ()
    """The queues that the worker serves, by their names in the broker."""

    receiver: RedisReceiver | None = None
    """Takes the messages of this consumer's queues. None: its own channel does."""

    def on_ready(self) -> None:
        """Connected, for the first time or again: wake-ups that were sent before may be lost."""
        super().on_ready()
        if self.receiver is not None:
            channel = self.task_consumer.channel
            channel.taken_elsewhere = True
            self.receiver.take(channel.keys)
        tasks.look_at_queue()

    def add_task_queue(self, queue: Any, *arguments: Any, **options: Any) -> Any:
        """``celery control add_consumer``: only for queues that the worker serves, because it would follow no other wake-up."""
        if queue in self.served:
            return super().add_task_queue(queue, *arguments, **options)
        log.error("queue_not_added queue=%.40s: this worker does not serve it; start one with --queues", queue)
        return None

    def ensure_connected(self, conn: Any) -> Any:
        """As Celery's, which waits for up to 30 s between two attempts."""
        ensure = conn.ensure_connection

        def ensure_connection(*arguments: Any, **options: Any) -> Any:
            return ensure(
                *arguments,
                **options,
                interval_start=_FIRST_RETRY_SECONDS,
                interval_step=_RETRY_STEP_SECONDS,
                interval_max=_LAST_RETRY_SECONDS,
            )

        conn.ensure_connection = ensure_connection
        return super().ensure_connected(conn)

    def received(self, key: str, text: bytes) -> None:
        """A message that ``receiver`` has taken, in the worker's loop."""
        try:
            message = json.loads(text)
            if message["headers"]["task"] == tasks.wake_worker.name and self._is_plain(message["headers"]):
                _woken(message["properties"]["delivery_info"]["routing_key"])
                return
        except (ValueError, TypeError, KeyError):
            pass  # Celery reports messages that are none of its own.
        self.hub.call_soon(self._deliver, key, text)

    def _deliver(self, key: str, text: bytes) -> None:
        # Without a connection the message is lost, as it is when the connection is lost while a message is on its way.
        if self.connection is not None and self.task_consumer is not None:
            channel = self.task_consumer.channel
            channel.connection._deliver(loads(text), channel.queue_of(key))

    def _is_plain(self, headers: Mapping[str, Any]) -> bool:
        """Whether the worker may look at the queue without Celery's path for tasks."""
        return (
            not headers.get("eta")
            and not headers.get("expires")
            and headers["id"] not in state.revoked
            and self.task_buckets[tasks.wake_worker.name] is None
            and not self._sends_task_events()
        )

    def _sends_task_events(self) -> bool:
        events = self.event_dispatcher
        return bool(events and events.enabled and (not events.groups or "task" in events.groups))


def wake_up(task: Task[..., Any], app: Celery, consumer: Consumer) -> Callable[..., None]:
    """Celery's strategy for wake-ups: makes the function that gets their messages from Celery's own channel."""
    by_celery = default(task, app, consumer)

    def receive(message: Any, body: Any, *rest: Any) -> None:
        # ``body`` belongs to the first version of Celery's protocol.
        if body is None and consumer._is_plain(message.headers):
            _woken(message.delivery_info["routing_key"])
        else:
            by_celery(message, body, *rest)

    return receive


def _woken(queue: str) -> None:
    """``queue``: its name in the broker."""
    state.total_count[tasks.wake_worker.name] += 1
    state.all_total_count[0] += 1
    stopping: object = state.should_stop  # Celery's types allow only None.
    if stopping is None:
        tasks.look_at_queue()
    else:
        # This worker claims nothing any more: another one should.
        tasks.wake(tasks.name_of(queue))
